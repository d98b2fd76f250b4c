//! One suite that every mover passes, in a directory and on an S3 server.

mod cases;

use crate::bed::{Where, Which};

/// The whole suite for one mover and one kind of place.
macro_rules! conformance {
    ($name:ident, $which:expr, $at:expr) => {
        mod $name {
            use super::*;
            conformance!(@ $which, $at,
                everything_comes_back_as_it_was,
                files_are_moved_side_by_side_and_filled_up_where_somebody_wants_it,
                a_second_backup_compares_with_the_first_and_stores_only_what_changed,
                a_restore_into_a_volume_that_is_not_empty_replaces_what_differs_and_leaves_the_rest,
                a_link_in_a_volume_that_leads_out_of_it_is_not_followed,
                a_backup_that_is_cancelled_in_the_middle_ends_within_five_seconds_and_can_be_done_again,
                a_restore_that_is_cancelled_in_the_middle_ends_within_five_seconds_and_can_be_done_again,
                a_backup_that_is_killed_in_the_middle_leaves_a_sound_repository_and_is_taken_up_again,
                a_restore_that_is_killed_in_the_middle_is_taken_up_again,
                a_source_that_changes_while_it_is_read_is_backed_up_all_the_same,
                files_that_cannot_be_read_are_named_and_the_rest_is_backed_up,
                an_empty_volume_is_no_error,
            );
        }
    };
    (@ $which:expr, $at:expr, $($case:ident,)+) => {
        $(
            #[test]
            fn $case() {
                cases::$case(&plimsoll_testkit::require!(crate::bed::Bed::new($which, $at)));
            }
        )+
    };
}

conformance!(built_in_in_a_directory, Which::BuiltIn, Where::Directory);
conformance!(built_in_on_s3, Which::BuiltIn, Where::S3);
conformance!(restic_0_14_in_a_directory, Which::OldRestic, Where::Directory);
conformance!(restic_0_14_on_s3, Which::OldRestic, Where::S3);
conformance!(restic_in_a_directory, Which::Restic, Where::Directory);
conformance!(restic_on_s3, Which::Restic, Where::S3);
conformance!(kopia_in_a_directory, Which::Kopia, Where::Directory);
conformance!(kopia_on_s3, Which::Kopia, Where::S3);
