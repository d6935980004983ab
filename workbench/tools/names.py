"""The names of the tools, for those that read declarations and import no tool: a test holds them to the operations."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

ASK_PERSON = "ask_person"
"""The tool by which a program that a runner runs asks a person."""
_NAMES = """
    file_read file_read_lines file_list file_tree file_search file_find file_stat file_write file_append
    file_replace file_patch file_move file_remove file_make_folder git_status git_diff git_log git_show git_blame
    git_branches git_create_branch git_checkout git_add git_commit git_restore git_stash test_list test_run
    test_run_one test_run_failed test_timing code_run code_profile code_check http_get http_head http_post http_put
    http_delete http_download db_tables db_describe db_query db_explain db_sample db_insert db_update db_delete
    db_create_table docker_ps docker_logs docker_inspect docker_images docker_control docker_build
"""
TOOL_NAMES = frozenset(_NAMES.split()) | {ASK_PERSON}


def unknown_tool(names: Iterable[str]) -> str | None:
    """Return a sentence on the first name that no tool has; None where all have one."""
    for name in names:
        if name not in TOOL_NAMES:
            near = get_close_matches(name[:100], TOOL_NAMES, n=1)
            return f"there is no tool {name[:100]!r}: " + (
                f"is {near[0]!r} meant?" if near else "see ratchet tools list"
            )
    return None
