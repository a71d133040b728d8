"""The mutated runs of a guided search for defects, and the same runs with the defect off.

Each arm that looks for a defect is guided by what its own runs reached. Its seeds are the numbers of its runs.
"""

from pathlib import Path

from harness.campaigns.crew import Request, Row
from harness.campaigns.files import CORPUS_FOLDER
from harness.campaigns.guided.campaign import GuidedArm
from harness.campaigns.requests import run_command
from harness.campaigns.shrinking.trial import Trial
from harness.defects.search_plan import OFF, SearchPlan, without_defect
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment


class SearchedMutants:
    """What the runs of a search are; in one that is not guided each is drawn from its seed. Mutable.

    Args:
        plan: Of the search.
        directory: Of the search; what repeats a mutant is stored in its folder `corpus`.
    """

    def __init__(self, plan: SearchPlan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory.resolve()
        self._guided = {
            arm.name: self._arm(arm.name, arm.experiment)
            for arm in plan.arms.values()
            if plan.guided and arm.oracle != OFF
        }
        self._arm_of = {arm.off: arm.name for arm in plan.arms.values() if arm.name in self._guided}
        self._found: dict[tuple[str, int], Trial] = {}

    def _arm(self, name: str, experiment: Experiment) -> GuidedArm:
        first, share = self._plan.first_seed, self._plan.guided
        return GuidedArm(name, experiment, first, share, lambda seed: self._path(name, seed))

    def _path(self, arm: str, seed: int) -> Path:
        return self._directory / CORPUS_FOLDER / f"{arm.replace(' ', '-')}-{seed}.toml"

    def is_ready(self, arm: str, seed: int) -> bool:
        """Returns whether it is known what a seed runs in an arm."""
        return arm not in self._guided or self._guided[arm].is_ready(seed)

    def request(self, arm: str, seed: int, request: Request) -> Request:
        """Returns a request with the mutant that runs, if one does; with the defect off, that of a finding."""
        if arm in self._guided:
            return self._guided[arm].request(seed, request)
        trial = self._found.get((self._arm_of.get(arm, ""), seed))
        if trial is None:
            return request
        experiment = without_defect(trial.experiment, self._plan.arms[arm].experiment.profile)
        path = self._path(arm, seed)
        path.parent.mkdir(exist_ok=True)
        path.write_text(experiments.dumps(experiment), encoding="utf-8")
        return {
            **request,
            "experiment": experiments.to_data(experiment),
            "root_seed": trial.seed,
        }

    def stamp(self, row: Row) -> None:
        """Adds the origin of a run to its row, before it is stored."""
        if row["arm"] in self._guided:
            self._guided[row["arm"]].stamp(row["seed"], row)

    def notice(self, row: Row, *, is_finding: bool) -> None:
        """Takes a row that was stored, in this process or an earlier one.

        Args:
            row: The row.
            is_finding: Whether its run has to be repeated with the defect off.
        """
        arm, seed = row["arm"], row["seed"]
        if arm not in self._guided:
            return
        if is_finding and (trial := self._guided[arm].trial(seed)) is not None:
            self._found[(arm, seed)] = trial
        self._guided[arm].notice(seed, row)

    def command(self, arm: str, seed: int) -> str:
        """Returns the command that repeats a run."""
        if arm in self._guided and (command := self._guided[arm].command(seed)) is not None:
            return command
        trial = self._found.get((self._arm_of.get(arm, ""), seed))
        if trial is not None:
            return run_command(self._path(arm, seed), trial.seed)
        return run_command(self._plan.experiment_path(self._directory, arm), seed)
