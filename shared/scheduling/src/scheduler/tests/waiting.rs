//! Who waits, who goes next, and that nobody is forgotten.

use super::*;

#[test]
fn requests_wait_while_all_rows_are_busy_and_go_in_order_when_one_is_free() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    for counter in 2..=3 {
        assert!(setup.submit(request(counter, 1)).is_none());
    }
    assert_eq!(setup.dispatch(1), []);
    setup.scheduler.prefill_complete(2, key(1), 1);
    assert_eq!(setup.dispatch(2), [(2, Ok(1)), (3, Ok(1))]);
}

#[test]
fn newcomers_do_not_overtake_waiters_that_need_the_same_rows() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    assert!(setup.submit(request(2, 100)).is_none());
    setup.scheduler.prefill_complete(0, key(1), 1);
    assert!(setup.submit(request(3, 1)).is_none(), "a row is free, but 2 was first");
    assert_eq!(setup.dispatch(0), [(2, Ok(1))]);
}

#[test]
fn b67_a_full_queue_rejects_and_names_its_limit() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    for counter in 2..=4 {
        assert!(setup.submit(request(counter, 1)).is_none());
    }
    assert_eq!(setup.submit(request(5, 1)), Some(Err(Rejection::QueueFull { waiting: 3, limit: 3 })));
}

#[test]
fn b63_a_cancelled_waiter_leaves_nothing_behind() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    assert!(setup.submit(request(2, 1)).is_none());
    setup.scheduler.release(0, key(2), false);
    setup.scheduler.release(0, key(1), false);
    assert_eq!(setup.dispatch(0), []);
    assert_eq!((setup.scheduler.waiting(), setup.scheduler.reservations()), (0, 0));
}

#[test]
fn b62_a_worker_that_joins_or_leaves_wakes_waiters() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    assert!(setup.submit(request(2, 1)).is_none());
    assert!(setup.submit(pinned(3, 1)).is_none());
    setup.scheduler.set_rows(vec![info(1, 0), info(2, 0)]);
    assert_eq!(setup.dispatch(0), [(2, Ok(2))]);
    setup.scheduler.set_rows(vec![info(2, 0)]);
    assert_eq!(setup.dispatch(0), [(3, Err(Outcome::ImpossiblePin))]);
}

#[test]
fn b62_a_waiter_for_others_than_an_inhibited_worker_goes_there_when_the_others_are_inhibited_too() {
    let mut setup = queueing(2);
    setup.booked(pinned(1, 2));
    setup.scheduler.prefill_complete(0, key(1), 1);
    let mut busy = pinned(2, 2);
    (busy.blocks, busy.prompt_tokens) = (request(2, 100).blocks, 1_600);
    setup.booked(busy);
    setup.scheduler.inhibit(WorkerId(1), info(1, 0).incarnation, 1_000);
    assert!(setup.submit(request(3, 1)).is_none(), "1 is left alone, 2 is busy");
    assert_eq!(setup.dispatch(1), []);
    setup.scheduler.inhibit(WorkerId(2), info(2, 0).incarnation, 1_000);
    assert!(setup.scheduler.needs_dispatch(1));
    assert_eq!(setup.dispatch(1), [(3, Ok(1))], "there is nobody else any more");
}

#[test]
fn b62_a_waiter_goes_to_an_inhibited_worker_when_the_other_one_is_overloaded() {
    let config = KvRouterConfig {
        queue_threshold: Some(1.0),
        overload_blocks_fraction: Some(0.9),
        ..KvRouterConfig::default()
    };
    let mut setup = setup_with("active-requests", config, vec![info(1, 0), info(2, 0)]);
    let mut busy = pinned(1, 2);
    (busy.blocks, busy.prompt_tokens) = (request(1, 100).blocks, 1_600);
    setup.booked(busy);
    setup.scheduler.inhibit(WorkerId(1), info(1, 0).incarnation, 1_000);
    assert!(setup.submit(request(2, 1)).is_none());
    assert_eq!(setup.dispatch(0), []);
    let full = RowReport { blocks_used: 990, blocks_total: 1_000 };
    setup.scheduler.report(0, Row::new(2, 0), info(2, 0).incarnation, full);
    assert_eq!(setup.dispatch(0), [(2, Ok(1))], "the news was of 2, the room is on 1");
}

#[test]
fn b62_the_end_of_an_inhibition_wakes_waiters_in_time() {
    let mut setup = queueing(2);
    let mut busy = pinned(1, 2);
    (busy.blocks, busy.prompt_tokens) = (request(1, 100).blocks, 1_600);
    setup.booked(busy);
    setup.scheduler.inhibit(WorkerId(1), info(1, 0).incarnation, 70);
    assert!(setup.submit(request(2, 1)).is_none());
    assert_eq!(setup.dispatch(0), []);
    assert_eq!(setup.scheduler.next_deadline_ms(), Some(70));
    assert!(!setup.scheduler.needs_dispatch(69) && setup.scheduler.needs_dispatch(70));
    assert_eq!(setup.dispatch(70), [(2, Ok(1))]);
}

#[test]
fn b62_room_on_one_row_wakes_those_that_it_may_take_and_nobody_else() {
    let mut setup = queueing(2);
    for (counter, worker) in [(1, 1), (2, 2)] {
        let mut busy = pinned(counter, worker);
        (busy.blocks, busy.prompt_tokens) = (request(counter, 100).blocks, 1_600);
        setup.booked(busy);
    }
    for waiter in [pinned(3, 1), pinned(4, 2), request(5, 1)] {
        assert!(setup.submit(waiter).is_none());
    }
    assert_eq!(setup.dispatch(0), []);
    setup.scheduler.release(0, key(2), false);
    assert_eq!(setup.dispatch(0), [(4, Ok(2)), (5, Ok(2))], "3 is tied to the other one");
    setup.scheduler.prefill_complete(0, key(1), 1);
    assert_eq!(setup.dispatch(0), [(3, Ok(1))]);
    assert!(!setup.scheduler.needs_dispatch(u64::MAX), "nobody waits");
}

#[test]
fn b58_a_request_sent_again_while_it_waits_waits_once_and_leaves_nothing_behind() {
    let mut setup = queueing(2);
    let first = setup.booked(request(1, 100));
    let other = if first.row == Row::new(1, 0) { 2 } else { 1 };
    let mut busy = pinned(2, other);
    (busy.blocks, busy.prompt_tokens) = (request(2, 100).blocks, 1_600);
    setup.booked(busy);
    let elsewhere = || {
        let failed = vec![(first.row.worker, first.incarnation)];
        constrained(1, Constraints { failed, ..Constraints::default() })
    };
    assert!(setup.submit(elsewhere()).is_none(), "a retry waits; its caller gives up on the answer");
    assert!(setup.submit(elsewhere()).is_none(), "and tries once more");
    assert_eq!(setup.scheduler.waiting(), 1);
    setup.scheduler.release(0, key(1), false);
    setup.scheduler.release(0, key(2), false);
    assert_eq!(setup.dispatch(0), []);
    assert_eq!((setup.scheduler.waiting(), setup.scheduler.reservations()), (0, 0));
}

#[test]
fn a_deadline_limits_the_wait_alone() {
    let mut setup = queueing(1);
    let impatient = |counter| Request { deadline_ms: Some(0), ..request(counter, 100) };
    setup.booked(impatient(1));
    assert_eq!(setup.submit(impatient(2)), Some(Err(Rejection::DeadlineExceeded { waited_ms: 0 })));
    setup.scheduler.prefill_complete(0, key(1), 1);
    let late = setup.scheduler.submit(120_000, request(3, 1), &setup.index).unwrap();
    assert!(late.result.is_ok(), "a retry that comes after the longest wait need not wait: {late:?}");
}

#[test]
fn b61_two_waiters_of_one_name_are_not_both_booked() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    let named = |counter| {
        let alias = Alias { id: "mine".into(), fingerprint: counter };
        Request { alias: Some(alias), ..request(counter, 1) }
    };
    assert!(setup.submit(named(2)).is_none() && setup.submit(named(3)).is_none());
    setup.scheduler.prefill_complete(0, key(1), 1);
    assert_eq!(setup.dispatch(0), [(2, Ok(1)), (3, Err(Outcome::IdConflict))]);
    assert_eq!(setup.scheduler.by_alias("mine"), Some((key(2), 2)));
}

#[test]
fn b79_a_name_used_again_at_once_is_its_new_requests() {
    let mut setup = queueing(1);
    setup.booked(request(1_000, 100));
    let named = |counter| {
        let alias = Alias { id: "x".into(), fingerprint: counter };
        Request { alias: Some(alias), ..request(counter, 1) }
    };
    for counter in (1..200).step_by(2) {
        assert!(setup.submit(named(counter)).is_none());
        setup.scheduler.release(0, key(counter), false);
        assert!(setup.submit(named(counter + 1)).is_none());
        setup.scheduler.prefill_complete(0, key(1_000), 1);
        assert_eq!(setup.dispatch(0), [(counter + 1, Ok(1))]);
        assert_eq!(setup.scheduler.by_alias("x"), Some((key(counter + 1), counter + 1)));
        setup.scheduler.release(0, key(counter + 1), true);
        setup.scheduler.release(0, key(1_000), false);
        setup.booked(request(1_000, 100));
    }
    setup.scheduler.release(0, key(1_000), false);
    assert_eq!((setup.scheduler.waiting(), setup.scheduler.reservations()), (0, 0));
}

#[test]
fn deadlines_end_the_wait() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    assert!(setup.submit(Request { deadline_ms: Some(50), ..request(2, 1) }).is_none());
    assert!(setup.submit(request(3, 1)).is_none());
    assert_eq!(setup.scheduler.next_deadline_ms(), Some(50));
    assert_eq!(setup.dispatch(49), []);
    assert_eq!(setup.dispatch(50), [(2, Err(Outcome::DeadlineExceeded))]);
    assert_eq!(setup.dispatch(60_000), [(3, Err(Outcome::DeadlineExceeded))], "the configured longest wait");
    let late = setup.submit(Request { deadline_ms: Some(0), ..request(4, 1) });
    assert_eq!(late, Some(Err(Rejection::DeadlineExceeded { waited_ms: 0 })));
}

#[test]
fn closing_answers_every_waiter_and_refuses_newcomers() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    assert!(setup.submit(request(2, 1)).is_none());
    let mut answers = Vec::new();
    setup.scheduler.close(&mut answers);
    assert_eq!(answers, [Answer { key: key(2), result: Err(Rejection::ShuttingDown) }]);
    assert_eq!(setup.submit(request(3, 1)), Some(Err(Rejection::ShuttingDown)));
}

#[test]
fn retries_do_not_wait_for_one_another() {
    let mut setup = queueing(2);
    let failed = |setup: &mut Setup, counter| {
        let booked = setup.booked(request(counter, 100));
        Constraints { failed: vec![(booked.row.worker, booked.incarnation)], ..Constraints::default() }
    };
    let (first, second) = (failed(&mut setup, 1), failed(&mut setup, 2));
    assert!(setup.submit(constrained(1, first)).is_none(), "the other row is busy");
    assert!(setup.submit(constrained(2, second)).is_some(), "the row that 1 failed on is not");
    assert_eq!(setup.dispatch(0).len(), 1);
}

#[test]
fn an_alias_in_use_is_a_conflict() {
    let mut setup = queueing(1);
    let named = |counter| {
        let alias = Alias { id: "mine".into(), fingerprint: counter };
        Request { alias: Some(alias), ..request(counter, 1) }
    };
    setup.booked(named(1));
    assert_eq!(setup.submit(named(2)), Some(Err(Rejection::IdConflict("mine".into()))));
}
