"""Why a test is left out on Windows, or only under Wine (such a reason begins with Wine): a pattern, and the reason.

Tests that use one of the shared helpers (`in_a_fork`, `need_redis`, `running_postgresql`, `in_nairobi`) are left out by
that helper.
"""

import sys
from fnmatch import fnmatchcase

_NO_RUFF = "Windows' ruff is a program, and setup.sh unpacks packages without their programs"
_NO_SIGNALS = "Windows has no signals between processes"
_NO_ACCEPT = "Wine's accept fails, now and then, if the client has aborted its connection already"
_NO_FILE = "Wine's Python dies at its start if its output is a file, as pytester has it"
_NO_FORK = "Windows has no fork"
_NO_MODES = "Windows has no modes and owners of files"
_OPEN_FILES = "Windows deletes no open file"
_NO_LINKS = "Wine makes no symbolic links"
_NO_RST = "Wine ends an aborted connection by FIN, where Windows sends RST"

SKIPS = {
    "test_architecture.py::test_nothing_is_loaded_before_it_is_needed": "Windows' trio imports asyncio",
    "test_campaign.py::test_simulated_payouts_are_paid_once*": _OPEN_FILES,
    "test_campaign.py::test_a_seed_replays_a_simulation_exactly": _OPEN_FILES,
    "test_campaign.py::test_the_simulation_catches_a_safety_that_is_off*": _OPEN_FILES,
    "test_pytest_plugin.py::test_a_merchants_own_tests": _NO_FILE,
    "test_pytest_plugin.py::test_a_test_runs_under_each_profile": _NO_FILE,
    "test_pytest_plugin.py::test_each_test_has_a_journal_of_its_own_in_one_database*": _NO_FILE,
    "test_pytest_plugin.py::test_the_*": _NO_FILE,
    "test_repository.py::test_no_file_is_*": "Wine has no git",
    "transport/test_sockets.py::test_a_payment_whose_time_passed_before_a_write_is_not_sent*-tcp-*": _NO_ACCEPT,
    "transport/test_sockets.py::test_a_payment_whose_time_passed_before_a_write_is_not_sent*-forwarded-*": _NO_ACCEPT,
    "transport/test_sockets.py::test_a_payment_without_a_whole_answer_is_reset*": _NO_RST,
    "sandbox/test_app.py::test_middleware_that_is_added_to_the_application": _NO_RST,
    "sandbox/test_fault_middleware.py::test_faults_that_disconnect[[]reset_*": _NO_RST,
    "transport/test_network.py::test_all_addresses_of_a_name_share_one_deadline*": "Windows connects in turns",
    "transport/test_network.py::test_a_silent_address_does_not_hold_up_the_next[[]asyncio]": (
        "Windows' usual loop waits for a connect in a thread; tests/windows/proactor.py shows that"
    ),
    "transport/test_connections.py::test_a_key_log_that_cannot_be_written_is_named": (
        "Windows' embeddable Python ignores SSLKEYLOGFILE"
    ),
    "transport/test_sync_backend.py::test_an_interrupt_in_flight_propagates_and_is_logged*": _NO_SIGNALS,
    "cli/test_app.py::test_every_help_page_fits": "Windows' pipes have 79 columns for typer, and no page fits",
    "cli/test_options.py::test_the_path_of_a_journal_is_no_part_of_a_url": "Windows' names have no question mark",
    "cli/test_output.py::test_by_default_times_are_of_the_machine": "Windows has no time.tzset",
    "cli/test_output.py::test_a_machine_without_zones_is_told_what_installs_them": (
        "Windows has no zones but those of tzdata, which the test hides"
    ),
    "cli/test_payouts.py::test_a_report_overwrites_neither_the_file_nor_a_journal": _NO_LINKS,
    "cli/test_report.py::test_only_its_owner_may_read_it": _NO_MODES,
    "docs/test_facts.py::test_an_example_text_is_what_the_error_says[[]OutcomeUnknownError]": _NO_RST,
    "docs/test_facts.py::test_an_example_text_is_what_the_error_says[[]JournalError]": _OPEN_FILES,
    "docs/test_fences.py::test_the_python_blocks_are_formatted": _NO_RUFF,
    "docs/test_fences.py::test_a_page_defines_the_names_that_it_uses": _NO_RUFF,
    "integrations/django/test_admin.py::test_a_journal_that_fails_is_a_message*sqlite*": _OPEN_FILES,
    "integrations/django/test_views.py::test_a_sweep_that_is_repeated_ends_at_ctrl_c*": _NO_SIGNALS,
    "journal/test_sqlite.py::test_what_can_be_no_journal_is_named_as_it_was_given[[].-*False]": (
        "Windows says that a folder has no bytes, so that it is no journal"
    ),
    "journal/test_sqlite.py::test_a_path_that_no_file_can_have_is_refused": _NO_LINKS,
    "journal/test_sqlite.py::test_one_file_by_two_names_is_one_journal": _NO_LINKS,
    "journal/test_sqlite.py::test_a_link_from_the_beginning_may_stay": _NO_LINKS,
    "journal/test_sqlite.py::test_a_process_whose_lock_file_was_deleted_registers_again": _OPEN_FILES,
    "journal/test_sqlite.py::test_a_hard_link_is_a_second_name_and_refused": _OPEN_FILES,
    "journal/test_sqlite.py::test_a_lost_file_is_noticed*-unlink-*": _OPEN_FILES,
    "journal/test_sqlite.py::test_a_lost_file_is_noticed*-replace-*": _OPEN_FILES,
    "journal/test_sqlite.py::test_a_path_that_leads_elsewhere_later_is_refused": _OPEN_FILES,
    "journal/test_sqlite.py::test_a_child_keeps_no_dead_parent_alive": _NO_FORK,
    "journal/test_sqlite.py::test_what_a_child_commits_outlasts_its_parents_journal": _NO_FORK,
    "safety/test_signals.py::test_calls_go_on_after_any_number_of_strikes*": _NO_SIGNALS,
    "ratelimit/test_file_budget.py::test_a_link_is_not_followed": _NO_LINKS,
    "ratelimit/test_file_budget.py::test_a_lost_log_counts_as_full_*[[]unlink-*": _OPEN_FILES,
    "ratelimit/test_file_budget.py::test_a_lost_log_counts_as_full_*[[]replace-*": _OPEN_FILES,
    "ratelimit/test_file_budget.py::test_a_second_name_of_a_file_is_refused": _NO_MODES,
    "ratelimit/test_file_budget.py::test_a_file_of_another_user_is_refused_unless_it_was_named": _NO_MODES,
    "ratelimit/test_file_budget.py::test_a_file_that_everybody_may_write_is_refused": _NO_MODES,
    "ratelimit/test_file_budget.py::test_what_is_no_file_is_refused": "Windows has no named pipes in folders",
    "ratelimit/test_file_budget.py::test_the_child_of_a_fork_keeps_no_file_of_its_parent_open": _NO_FORK,
    "ratelimit/test_file_budget.py::test_a_process_that_stops_or_dies_with_the_lock_*": _NO_FORK,
}


def is_wine() -> bool:
    if sys.platform != "win32":
        return False
    import ctypes

    return hasattr(ctypes.windll.ntdll, "wine_get_version")


def reason_to_skip(node: str) -> str | None:
    """Return why the test with this id is left out on this Windows, or None."""
    found = next((reason for pattern, reason in SKIPS.items() if fnmatchcase(node, f"tests/{pattern}")), None)
    return None if found is None or (found.startswith("Wine") and not is_wine()) else found
