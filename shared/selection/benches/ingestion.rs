//! What a batch of KV events costs on its way from the bus into the index, and the share of decoding in that:
//! `cargo bench -p switchtower-selection`. Figures are blocks per second.
//!
//! A full batch: 512 events of 16 blocks, chains of 128 blocks. Rows in turn, so that the index grows as with a fleet whose
//! workers hold much the same prompts; it is emptied when it holds a million pairs.

use divan::{Bencher, black_box, counter::ItemsCount};
use switchtower_ids::{Incarnation, Row, SequenceHash, Tier};
use switchtower_kv::{
    event::{EventBatch, KvEvent, SequencedEvent},
    index::{PrefixIndex, RowSlot},
};
use switchtower_selection::wire::{BATCH_EVENTS_MAX, decode, encode};

const EVENTS: u64 = BATCH_EVENTS_MAX as u64;
const EVENT_BLOCKS: u64 = 16;
const CHAIN_EVENTS: u64 = 8;
const BATCH_BLOCKS: u64 = EVENTS * EVENT_BLOCKS;
const ROWS: u32 = 128;

fn main() {
    divan::main();
}

/// Spreads a number over 64 bits, as hashes are.
const fn spread(number: u64) -> u64 {
    let number = (number ^ (number >> 31)).wrapping_mul(0x7FB5_D329_728E_A185);
    let number = (number ^ (number >> 27)).wrapping_mul(0x81DA_DEF4_BC2D_D44D);
    number ^ (number >> 33)
}

fn batch() -> EventBatch {
    let event = |at: u64| {
        let block = |number| SequenceHash(spread(at * EVENT_BLOCKS + number + 1));
        let parent = (!at.is_multiple_of(CHAIN_EVENTS)).then(|| SequenceHash(spread(at * EVENT_BLOCKS)));
        let blocks = (0..EVENT_BLOCKS).map(block).collect();
        SequencedEvent { seq: at + 1, event: KvEvent::Stored { tier: Tier::Device, parent, blocks } }
    };
    EventBatch { row: Row::new(1, 0), incarnation: Incarnation(1), events: (0..EVENTS).map(event).collect() }
}

/// An index that batches are applied to, one row after the other.
#[derive(Default)]
struct Fleet {
    index: PrefixIndex,
    row: u32,
}

impl Fleet {
    fn apply(&mut self, batch: &EventBatch) {
        if self.row == ROWS {
            *self = Self::default();
        }
        for event in &batch.events {
            self.index.apply(RowSlot(self.row), &event.event).expect("the chains are whole");
        }
        self.row += 1;
    }
}

#[divan::bench]
fn encoding(bencher: Bencher<'_, '_>) {
    let batch = batch();
    bencher.counter(ItemsCount::new(BATCH_BLOCKS)).bench(|| encode(black_box(&batch)));
}

#[divan::bench]
fn decoding(bencher: Bencher<'_, '_>) {
    let payload = encode(&batch());
    bencher
        .counter(ItemsCount::new(BATCH_BLOCKS))
        .bench(|| decode::<EventBatch>(black_box(&payload)).expect("a batch"));
}

#[divan::bench]
fn index(bencher: Bencher<'_, '_>) {
    let (batch, mut fleet) = (batch(), Fleet::default());
    bencher.counter(ItemsCount::new(BATCH_BLOCKS)).bench_local(|| fleet.apply(black_box(&batch)));
}

#[divan::bench]
fn decoding_and_index(bencher: Bencher<'_, '_>) {
    let (payload, mut fleet) = (encode(&batch()), Fleet::default());
    bencher
        .counter(ItemsCount::new(BATCH_BLOCKS))
        .bench_local(|| fleet.apply(&decode(black_box(&payload)).expect("a batch")));
}
