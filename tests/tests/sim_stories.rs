//! Stories: one site, one thing that went wrong somewhere, and what must come of it.

use coroner_shared::time::Span;
use coroner_tests::sim::{Sim, Site, stories};

/// The main job: a machine loses power, is found off, proven, released, and comes back.
#[test]
fn a_power_cut_is_found_proven_and_released_and_the_node_returns() {
    let mut sim = Sim::new(Site::plain(1, 5, 2));
    sim.warm_up();
    assert!(sim.violations().is_empty(), "{}", sim.story());
    sim.cut_power("n4");
    assert!(sim.run_until(Span::from_secs(30), |sim| sim.phase("n4") == "Released"), "{}", sim.story());
    sim.power_on("n4");
    assert!(sim.run_until(Span::from_mins(10), |sim| sim.phase("n4") == "Alive"), "{}", sim.story());
    sim.finish();
    assert!(sim.violations().is_empty(), "{}", sim.story());
}

#[test]
fn two_runs_of_a_seed_are_equal() {
    let run = || {
        let mut sim = Sim::quiet(Site::plain(2, 5, 2));
        sim.warm_up();
        sim.freeze("n3");
        sim.run_for(Span::from_secs(60));
        sim.hash()
    };
    assert_eq!(run(), run());
}

/// One test per story, and one that none is forgotten.
macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            if let Err(why) = stories::tell(stringify!($name)) {
                panic!("{why}");
            }
        })*

        #[test]
        fn every_story_is_told_here_and_names_its_thread() {
            let told = [$(stringify!($name)),*];
            let all: Vec<&str> = stories::all().map(|story| story.name).collect();
            assert_eq!(all, told);
            for story in stories::all() {
                let cited = story.thread.contains(['#', '/', '(']) || story.thread.starts_with("inferred");
                assert!(cited, "{}", story.name);
                assert!(story.lesson.ends_with('.'), "{}", story.name);
            }
        }
    };
}

tests! {
    one_isolated_host_outvotes_nobody
    a_rack_without_its_uplink_is_held_and_comes_back
    a_broken_link_that_goes_on_accusing_harms_nobody
    what_observers_said_before_is_told_to_a_new_leader
    a_new_leader_that_has_heard_nobody_accuses_nobody
    slow_elections_condemn_nobody
    a_suspicion_shorter_than_the_beacons_is_refused
    a_host_that_flapped_comes_back_by_itself
    one_peer_alone_decides_nothing
    two_that_vouch_for_each_other_are_both_fenced
    three_of_seven_that_vouch_for_each_other_are_held_by_name
    an_isolated_host_with_a_dead_bmc_is_never_assumed_off
    a_control_plane_node_is_judged_by_the_same_evidence
    slow_is_not_dead
    a_node_that_recovers_on_the_way_is_left_alone
    a_quick_reboot_does_not_run_old_pods_beside_new_ones
    a_pause_stops_commands_and_no_way_back
    one_of_many_silent_ones_at_a_time
    two_hosts_of_replicas_are_never_down_by_our_hand
    a_node_deleted_in_the_middle_leaves_nothing
    an_opt_out_is_never_overwritten
    a_success_before_the_machine_is_off_releases_nothing
    a_conflict_from_a_machine_that_is_off_is_no_failure
    powering_off_is_on
    a_machine_that_never_stops_powering_off_is_shown_and_never_released
    a_bmc_that_just_restarted_proves_nothing_for_a_while
    a_rack_whose_bmcs_restart_while_its_switch_blips_is_not_found_off
    a_release_is_bound_to_one_boot
    an_answer_lost_on_the_way_is_not_repeated_blindly
    a_cable_swapped_in_the_middle_turns_nobody_else_off
    the_second_system_of_a_chassis_is_not_touched
    a_person_who_was_wrong_is_found_out_and_the_node_comes_back_as_it_was
    a_bmc_that_says_off_of_a_machine_that_is_heard_is_not_believed
    off_is_said_of_a_machine_that_is_then_cut_off
    bmcs_that_changed_places_turn_nobody_off
    a_word_that_is_neither_on_nor_off_proves_nothing
    a_bmc_without_one_uuid_of_its_own_is_shown_and_never_used
    a_uuid_that_goes_before_it_is_needed_sends_nothing
    a_member_that_cannot_be_read_while_off_is_noted_and_the_pinned_one_decides
    an_off_that_is_refused_is_tried_again_and_named
    off_already_is_released_at_once
    a_machine_that_ignores_commands_is_tried_on_and_shown
    a_dead_bmc_needs_a_person_and_then_seconds
    a_leader_that_dies_in_the_middle_turns_nothing_off_twice
    power_restored_by_the_chassis_is_seen
    an_off_between_two_ons_is_no_proof
    errors_of_a_machine_that_is_off_are_not_off
    a_node_that_dies_again_and_again_is_left_off
    an_order_is_carried_out_and_the_node_comes_back
    a_stalled_api_server_is_not_the_death_of_nodes
    an_arbiter_cut_from_the_workers_freezes
    ready_false_for_long_is_no_death
    a_kubelet_that_is_gone_for_long_is_no_death
    a_kubelet_that_renews_is_alive
    a_kernel_that_answers_is_held_for_a_person
    heard_by_one_that_tells_only_a_follower_is_heard
    a_one_way_cut_takes_nobody_else_along
    a_leader_that_slept_accuses_nobody
    a_torn_network_condemns_nobody
    many_that_fall_silent_at_once_are_a_storm
    old_beacons_sent_again_keep_nobody_alive
    a_planned_reboot_is_not_a_death
    a_boot_after_a_fence_is_waited_for
    a_shutdown_that_was_announced_is_no_death_until_it_has_lasted
    a_host_that_hangs_after_its_goodbye_is_fenced_when_that_has_lapsed
    restarted_agents_and_replicas_harm_nobody
    nodes_long_dead_are_not_fenced_when_enforce_begins
    a_crash_dump_is_not_cut_short_without_being_asked
    marks_of_others_stay_as_they_are
    a_cordon_of_a_person_stays
    a_taint_is_not_taken_away_while_old_pods_are_left
    a_leader_with_a_stalled_disk_does_not_keep_the_dead_waiting
    a_leader_whose_disk_fails_stops_and_another_goes_on
    a_leader_that_slept_acts_on_nothing_it_read_before
    a_deposed_leader_answers_no_reads
    an_overloaded_host_accuses_nobody
    loss_makes_nobody_flap
    liars_fewer_than_a_verdict_needs_condemn_nobody
    a_clone_that_spoke_for_a_node_does_not_have_it_killed
    a_replica_put_back_from_a_copy_ends_by_name_and_decides_nothing
    a_second_voter_waits_for_the_first_whatever_policies_select_them
    two_of_five_voters_are_fenced_one_after_the_other
    a_leader_is_fenced_by_the_others
    a_name_that_begins_like_another_is_another
    nothing_is_done_while_the_api_server_cannot_be_read
    a_node_without_a_record_of_its_bmc_is_held_by_name
    a_record_that_was_lost_is_shown_before_it_is_needed
    a_machine_off_for_maintenance_stays_fenceable
    a_bmc_that_fails_when_it_is_needed_is_paged_within_a_minute
    a_node_whose_agent_never_spoke_is_neither_well_nor_condemned
    agents_that_start_in_any_order_accuse_nobody
    endless_flapping_fills_nothing
    a_confirmation_counts_for_one_incident_and_for_nothing_that_lives
    a_confirmation_that_has_grown_old_is_asked_for_again
    what_is_withdrawn_at_any_step_comes_to_a_defined_end
    what_a_bmc_answered_stands_in_the_history
    a_power_on_that_comes_to_nothing_is_shown
    a_power_cycle_is_no_proof
    replicas_restarted_in_any_state_forget_nothing
    a_policy_is_edited_in_any_state_and_an_incident_keeps_its_terms
    many_updates_of_a_node_are_one_incident
    a_condition_that_comes_and_goes_opens_nothing_anew
    a_second_death_in_the_middle_of_the_first_is_not_lost
    clocks_that_are_set_change_nothing
}
