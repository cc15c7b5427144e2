//! Every interleaving of reservations with the moment at which a recovery counts them:
//! `cargo test --release -p haypile-log --features loom --test loom`.
#![cfg(feature = "loom")]

use haypile_log::testing::Budget;
use loom::sync::Arc;
use loom::thread;

#[test]
fn a_frozen_budget_counts_every_reservation_that_was_given() {
    loom::model(|| {
        let budget = Arc::new(Budget::new());
        budget.set_limit(10);
        let takers: Vec<_> = [4, 5]
            .map(|charge| {
                let budget = budget.clone();
                thread::spawn(move || if budget.take(charge) { charge } else { 0 })
            })
            .into();
        let counted = budget.freeze();
        let given: u64 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert!(given <= counted, "given {given}, counted {counted}");
        assert_eq!(budget.charged(), given, "what was refused is not charged");
        assert!(!budget.take(1));
    });
}

#[test]
fn the_limit_is_never_passed() {
    loom::model(|| {
        let budget = Arc::new(Budget::new());
        budget.set_limit(10);
        let takers: Vec<_> = [6, 5]
            .map(|charge| {
                let budget = budget.clone();
                thread::spawn(move || if budget.take(charge) { charge } else { 0 })
            })
            .into();
        let given: u64 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert!(given <= 10);
        budget.give_back(given);
        assert!(budget.take(10));
    });
}
