//! Hashes equal the published vectors, so that other tools' events fit.

use serde::Deserialize;
use std::num::NonZeroU32;
use switchtower_ids::{LocalHash, SequenceHash};
use switchtower_kv::hash::{HashSpace, block_hashes, extend, local_hashes, sequence_hashes};

#[derive(Deserialize)]
struct File {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    block_size: NonZeroU32,
    tokens: Vec<u32>,
    lora_name: Option<String>,
    cache_salt: Option<String>,
    local_hashes: Vec<String>,
    sequence_hashes: Vec<String>,
}

fn numbers(texts: &[String]) -> Vec<u64> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn every_published_vector_is_reproduced() {
    let file: File = serde_json::from_str(include_str!("../vectors/block_hashes.json")).unwrap();
    assert!(file.vectors.len() >= 14);
    for vector in file.vectors {
        let space = HashSpace::new(vector.lora_name.as_deref(), vector.cache_salt.as_deref());
        let locals = local_hashes(&vector.tokens, vector.block_size, space);
        let expected: Vec<_> = numbers(&vector.local_hashes).into_iter().map(LocalHash).collect();
        assert_eq!(locals, expected);
        let expected: Vec<_> = numbers(&vector.sequence_hashes).into_iter().map(SequenceHash).collect();
        assert_eq!(sequence_hashes(&locals), expected);
        assert_eq!(block_hashes(&vector.tokens, vector.block_size, space), expected);
        let mut parent = None;
        for (local, sequence) in locals.into_iter().zip(expected) {
            parent = Some(extend(parent, local));
            assert_eq!(parent, Some(sequence));
        }
    }
}
