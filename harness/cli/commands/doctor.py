"""`laststand doctor`: reports what this machine has and what is missing."""

import argparse

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_hosts_option
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.errors import UsageError


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "doctor", doctor, "report what this machine has and what is missing"
    )
    parser.add_argument(
        "--warm", action="store_true", help="also prepare Spark's class-data archive"
    )
    parser.add_argument(
        "--on", metavar="WORLD", help="also list the faults that docker or ssh supports, and how"
    )
    parser.add_argument(
        "--system",
        metavar="SYSTEM[:VERSION]",
        help="also report what this system needs, for example apache-kafka:4.1.2",
    )
    add_hosts_option(parser, "read the hosts for --on ssh from this TOML file")


def doctor(options: argparse.Namespace) -> int:
    """Reports what this machine has and what is missing."""
    from harness.cli import doctor as machine
    from results.tables import table

    if options.hosts is not None and options.on is None:
        raise UsageError("--hosts is for --on ssh; leave it out, or add --on ssh")
    if options.warm:
        with StandardErrorProgress(quiet=options.quiet) as progress:
            machine.warm_up(progress)
    findings = machine.examine(options.results)
    if options.on is not None:
        findings += machine.examine_world(options.on, options.hosts)
    if options.system is not None:
        from harness.cli.system_findings import examine_system

        findings += examine_system(options.system)
    missing = [finding.name for finding in findings if not finding.is_good]
    if options.json:
        failed = f"not as it should be: {', '.join(missing)}" if missing else None
        print_json({"findings": [finding.to_json() for finding in findings], "error": failed})
    else:
        rows = [finding.cells() for finding in findings]
        show(table(("state", "name", "text"), rows, header=False, folding={"text"}))
    return exit_codes.FAILURE if missing else exit_codes.VALID
