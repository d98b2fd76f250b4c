//! The conformance suite of all movers, in a directory and on an S3 server.

mod cases;

use crate::testbed::{StoreKind, TestMover};

/// The suite for one mover and one kind of store.
///
/// `store_cases` are those in which the store matters to our code: its address and credentials, and what is left in it after a
/// cancel or a kill. What restic and kopia do with the files of a volume does not depend on where they store them.
macro_rules! conformance {
    ($name:ident, $mover:expr, $store:expr, store_cases) => {
        mod $name {
            use super::*;
            conformance!(@ $mover, $store,
                all_properties_are_restored,
                a_second_backup_stores_only_changes,
                a_cancelled_backup_ends_within_five_seconds_and_can_be_repeated,
                a_killed_backup_leaves_an_intact_repository_and_can_be_repeated,
            );
        }
    };
    ($name:ident, $mover:expr, $store:expr) => {
        mod $name {
            use super::*;
            conformance!(@ $mover, $store,
                all_properties_are_restored,
                parallelism_and_sparse_files_can_be_configured,
                a_second_backup_stores_only_changes,
                a_restore_replaces_different_files_and_leaves_the_rest,
                a_link_out_of_the_volume_is_not_followed,
                a_cancelled_backup_ends_within_five_seconds_and_can_be_repeated,
                a_cancelled_restore_ends_within_five_seconds_and_can_be_repeated,
                a_killed_backup_leaves_an_intact_repository_and_can_be_repeated,
                a_killed_restore_can_be_resumed,
                a_changing_source_is_backed_up,
                unreadable_files_are_problems_and_the_rest_is_backed_up,
                an_empty_volume_is_not_an_error,
            );
        }
    };
    (@ $mover:expr, $store:expr, $($case:ident,)+) => {
        $(
            #[test]
            fn $case() {
                cases::$case(&plimsoll_testkit::require!(crate::testbed::Testbed::new($mover, $store)));
            }
        )+
    };
}

conformance!(built_in_in_a_directory, TestMover::BuiltIn, StoreKind::Directory);
conformance!(built_in_on_s3, TestMover::BuiltIn, StoreKind::S3);
conformance!(restic_0_14_in_a_directory, TestMover::OldRestic, StoreKind::Directory);
conformance!(restic_0_14_on_s3, TestMover::OldRestic, StoreKind::S3, store_cases);
conformance!(restic_in_a_directory, TestMover::Restic, StoreKind::Directory);
conformance!(restic_on_s3, TestMover::Restic, StoreKind::S3, store_cases);
conformance!(kopia_in_a_directory, TestMover::Kopia, StoreKind::Directory);
conformance!(kopia_on_s3, TestMover::Kopia, StoreKind::S3, store_cases);
