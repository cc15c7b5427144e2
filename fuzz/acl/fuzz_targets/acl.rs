//! Rules of a user, and files of users. What may not happen is in `haypile_acl::testing::check_rules`, which an
//! ordinary seeded test runs as well.
#![no_main]

thread_local! {
    static CATALOG: haypile_acl::Catalog = haypile_acl::testing::catalog();
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    CATALOG.with(|catalog| haypile_acl::testing::check_rules(catalog, data));
});
