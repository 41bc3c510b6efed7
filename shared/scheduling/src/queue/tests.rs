//! Order, bounds, deadlines and the exception for constrained waiters.

use super::*;
use crate::{
    Constraints,
    testing::{constrained, key, request},
};
use switchtower_ids::WorkerId;

fn waiting(request: Request, deadline_ms: u64) -> Waiting {
    Waiting { request, deadline_ms }
}

fn tied(counter: u64) -> Request {
    constrained(counter, Constraints { allowed_workers: vec![WorkerId(1)], ..Constraints::default() })
}

fn queue(requests: Vec<Request>) -> FcfsQueue {
    let mut queue = FcfsQueue::new(100);
    for request in requests {
        queue.push(waiting(request, 1_000)).unwrap();
    }
    queue
}

/// Offers everything and returns who was asked; `may_go` answers.
fn asked(queue: &mut FcfsQueue, may_go: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut asked = Vec::new();
    queue.offer(&mut |waiting| {
        asked.push(waiting.request.key.counter);
        if may_go(waiting.request.key.counter) { Verdict::Done } else { Verdict::Blocked }
    });
    asked
}

#[test]
fn first_come_first_served_until_one_cannot_go() {
    let mut queue = queue((1..=4).map(|counter| request(counter, 1)).collect());
    assert_eq!(asked(&mut queue, |counter| counter <= 2), [1, 2, 3]);
    assert_eq!(queue.len(), 2);
    assert_eq!(asked(&mut queue, |_| true), [3, 4]);
    assert!(queue.is_empty());
}

/// May go to worker `worker` only.
fn tied_to(counter: u64, worker: u64) -> Request {
    let allowed_workers = vec![WorkerId(worker)];
    constrained(counter, Constraints { allowed_workers, ..Constraints::default() })
}

#[test]
fn a_blocked_pin_blocks_nobody_and_is_not_blocked() {
    let mut queue = queue(vec![tied(1), request(2, 1), request(3, 1), tied_to(4, 2)]);
    assert_eq!(asked(&mut queue, |counter| counter == 4), [1, 2, 4], "3 waits behind 2, 4 behind nobody");
    assert_eq!(queue.len(), 3);
    assert!(queue.must_wait(&request(9, 1)) && queue.must_wait(&tied(9)) && !queue.must_wait(&tied_to(9, 2)));
    assert_eq!(asked(&mut queue, |counter| counter != 1), [1, 2, 3]);
    assert!(!queue.must_wait(&request(9, 1)), "only a constrained one is left");
}

#[test]
fn who_prefers_something_stands_in_the_same_line() {
    let preferring = Constraints { preferred_taints: vec!["fast".into()], ..Constraints::default() };
    let mut queue = queue(vec![request(1, 1), constrained(2, preferring.clone())]);
    assert!(queue.must_wait(&constrained(3, preferring)));
    assert_eq!(asked(&mut queue, |_| false), [1]);
}

#[test]
fn b65_the_order_over_all_lanes_is_the_order_of_arrival() {
    let mut queue = queue(vec![tied(1), request(2, 1), tied_to(3, 2), tied(4), request(5, 1)]);
    assert_eq!(asked(&mut queue, |_| true), [1, 2, 3, 4, 5]);
}

/// A round costs the lanes' heads and no more, and a departure only itself, however many wait.
#[test]
fn b135_thousands_of_blocked_waiters_are_not_looked_at() {
    let mut queue = FcfsQueue::new(10_000);
    for counter in 0..9_000 {
        let request = if counter % 3 == 0 { request(counter, 0) } else { tied_to(counter, counter % 3) };
        queue.push(waiting(request, counter)).unwrap();
    }
    assert_eq!(asked(&mut queue, |_| false), [0, 1, 2]);
    assert_eq!(queue.expire(4_499).len(), 4_500);
    for counter in (0..9_000).rev() {
        assert_eq!(queue.remove(key(counter)).is_some(), counter >= 4_500);
    }
    assert!(queue.is_empty() && queue.lanes.is_empty() && queue.places.is_empty());
    assert_eq!(queue.next_deadline_ms(), None);
}

#[test]
fn b67_one_more_than_the_limit_is_given_back() {
    let mut queue = FcfsQueue::new(1);
    assert!(queue.push(waiting(request(1, 1), 5)).is_ok());
    assert_eq!(queue.push(waiting(request(2, 1), 5)).unwrap_err().request.key, key(2));
    queue.remove(key(1)).unwrap();
    assert!(queue.push(waiting(request(2, 1), 5)).is_ok());
}

#[test]
fn deadlines_expire_in_any_order() {
    let mut queue = FcfsQueue::new(100);
    for (counter, deadline_ms) in [(1, 30), (2, 10), (3, 20)] {
        queue.push(waiting(tied(counter), deadline_ms)).unwrap();
    }
    assert_eq!(queue.next_deadline_ms(), Some(10));
    assert!(queue.expire(9).is_empty());
    let expired: Vec<_> = queue.expire(20).iter().map(|waiting| waiting.request.key.counter).collect();
    assert_eq!(expired, [2, 3], "the earliest deadline first");
    assert_eq!(queue.next_deadline_ms(), Some(30));
    assert_eq!(asked(&mut queue, |_| true), [1]);
    assert!(queue.expire(30).is_empty());
}

#[test]
fn b63_a_cancelled_waiter_leaves_at_once() {
    let mut queue = queue(vec![request(1, 1), tied(2), request(3, 1)]);
    assert!(queue.remove(key(1)).is_some() && queue.remove(key(1)).is_none());
    assert!(queue.remove(key(2)).is_some());
    assert_eq!(asked(&mut queue, |_| true), [3]);
    assert_eq!(queue.drain().len(), 0);
}
