"""D4RL's files: where they are, how to tell them, and which environment they belong to."""

from __future__ import annotations

import os
from typing import NamedTuple

from mtm.data.environment_ids import ADROIT, NAMES

ORIGIN = "http://rail.eecs.berkeley.edu/datasets/offline_rl"
COPY = "https://huggingface.co/datasets/imone/D4RL/resolve/main"

MIRRORS_VARIABLE = "MTM_D4RL_MIRRORS"
"""Environment variable: base URLs, separated by commas, that are tried before the two above."""

HORIZONS = {"pen": 100, "door": 200, "hammer": 200, "relocate": 200}
"""Steps after which an environment ends an episode; 1000 for those not listed."""

# Family, quality, bytes and SHA-256, as TensorFlow Datasets publishes them for the files of ORIGIN
# (tensorflow_datasets/d4rl/*/checksums.tsv). COPY shows the same SHA-256 for its files.
_FILES = """
hopper      random        152525345 63103ef7059db4c0819bd054f4e83ff339030b50bcdb46bdbe50385f234b5054
hopper      medium        152756557 5bdf1bc4a713c82941de44633df669b36c89850b652a25985166796d25cf71a0
hopper      medium-replay  75854457 e121c5f7c9857a307baa9edc6a2c3b48e85fedb9ac316ecddd0f48ca7ef4e39b
hopper      full-replay   187998921 56baf95963c51c1e964049a974566c50ba80f289390565523e60c0ba83e0982e
hopper      medium-expert 304537315 9d51ad87f8c905be3880d84c6140bcdb7fbf39a19e046a237f238ba34fec9e26
hopper      expert        152427435 01aa219a5f8eea5e639eccdc636ec2bf40e317159a95cf4bf6e985f16909941b
walker2d    random        216109364 4e863bb6090cf4a461548bd470564b32f1ae5b32ef3085f816b2ede7f092e7fa
walker2d    medium        232254996 cf00f43add04c17fdfc2958dd581dea0851b2e5bedbe6fda073758a8f841aeda
walker2d    medium-replay  86323963 e75de96a4f77acf7d4e0d6fdf0d7ccb177c26c44bb4388e4fd99f543ccfa18db
walker2d    full-replay   285115514 f2720f9d27b2acef6ec9a7d9ad3b80b6c2078ad4467cee668a81e3b3c80bcf2a
walker2d    medium-expert 462197079 6b8d7f868c45bbaedf460be797fb7271b46dee6ebe45fe7a64319f2005b59a04
walker2d    expert        230567195 2985dc3d436a8baa10e8f43f946fe1d7c6337a4e4fbc65def70618093b18c59a
halfcheetah random        237338037 25407aef85b5d16c0f36b4149341edb4acc6a9e88c1db529b2de19e7464874ba
halfcheetah medium        237727262 41324e8487a9556d8cfa4538827f8937f4d63dae3030825ebc9f3a726ed08ca0
halfcheetah medium-replay  59448533 48d494a4770c11f48260736dec090b78bdca8375647ed4d24bfa5b6610c7f683
halfcheetah full-replay   291381762 27fdf7ea86e5a2cbd24d611ae9e703c86ec2e8e52823abc69dd9af6afb3a36c0
halfcheetah medium-expert 474567252 015db75dae5bbe8e94029b71fa0bafc2073365df0c94744e71031189f3f79c06
halfcheetah expert        237464597 d9fe53bb994eb1e20a99b4fa3412cd76a1bb7966a7ff55e0fcbdd6081bd2965f
ant         random        384466831 93cc10893eed2b8e17f81d1aa51dc23d27c5ca101a3804249f6bd038c6f06055
ant         medium        376239825 461c03b9f70f40d66b47608a92965e4ef3642bd9cdb1320d10acc92754167137
ant         medium-replay 136482252 844c4e5743ef51091f2106a3570b257fb149032c4743f8a5f02f40adc3b42a46
ant         full-replay   449390167 b95b0a7f34b1d5d1bedfded0f8e9cfc508b59de83cd4cbfb65b18dbd5056f26c
ant         medium-expert 748335217 8cfb64e62d8944b5d9dada5f0cfc13a295fafe0c6ba58b778e32ebf16c95aef1
ant         expert        373231677 fa22531ca79ea051006fa48bb652120d2e12c813919c530369a03c2688311b0f
pen         expert        262040663 3791b8ca6a802061770af2977c051ac3ae261488210ce73788760a5b8308f374
pen         human           2040573 209e345b2150b633f30a11612612c60f49e941f127ce6c4dc0cd790501c46f9f
pen         cloned        155074191 6d1a982cee1950501bedebbddedbcbb377e6284d379986c83abac8a6c0be0c22
door        expert        536056678 66df4cd4e0a1e0b72ea72653ce088e29ecbfa99bac3cd2b52e64092e9a0aaab4
door        human           3121206 f9691288c3ddf2b4e7b31bdae0d8444b80ba035515495f8a902d60c43ee09370
door        cloned        294356136 1f6a60ecc4d2a2e5c02f41dd3412be61bb265a33dcf120ceee9e9682d4fe4d48
hammer      expert        557047483 1c069a0f6e4852493023c77dc3b3a12d8d5ac2e3a034827fea3ab8a161e7185f
hammer      human           5606475 3e42f3f49b5c92a901601dfe867c6c62a9651cbe79f6760ec8b402a15816a498
hammer      cloned        446616879 e48d75b159bdd72f51d3f01448d3eca4d38275714e11e995c14a36f6cf159db3
relocate    expert        715618341 ab13714637424e636e768fff1351900dbe5155c5c4529eace97fa1f97a2fd03b
relocate    human           6206987 8820800fd733153fc3cac495c237fad1793d00a3650e01cd1510c49fc9964c9c
relocate    cloned        581319494 8baf2b7f0a7e44e6263e89a4c544a5dd98475f2dada833ba60d887e08fc77772
"""


class Entry(NamedTuple):
    """One file of D4RL."""

    family: str
    """Such as `hopper`."""
    quality: str
    """Such as `medium-replay`."""
    size: int
    """In bytes."""
    sha256: str

    @property
    def name(self) -> str:
        """D4RL's name of the data set, such as `hopper-medium-replay-v2`."""
        return f"{self.family}-{self.quality}-{'v1' if self.family in ADROIT else 'v2'}"

    @property
    def file_name(self) -> str:
        """D4RL's name of the file: `hopper_medium_replay-v2.hdf5`, but `pen-human-v1.hdf5`."""
        with_underscores, with_hyphens = file_names(self.name)
        return with_hyphens if self.family in ADROIT else with_underscores

    @property
    def env_id(self) -> str:
        """The environment that the data belong to, of those that run today."""
        return f"{NAMES[self.family]}-{'v1' if self.family in ADROIT else 'v4'}"

    @property
    def horizon(self) -> int:
        """Steps after which the environment ends an episode."""
        return HORIZONS.get(self.family, 1000)

    def urls(self) -> list[str]:
        """Where to get it: from the user's own mirrors, the original host, or a copy."""
        own = os.environ.get(MIRRORS_VARIABLE, "").split(",")
        folder = "hand_dapg_v1" if self.family in ADROIT else "gym_mujoco_v2"
        bases = [*(base.strip() for base in own), f"{ORIGIN}/{folder}", COPY]
        return [f"{base.rstrip('/')}/{self.file_name}" for base in bases if base]


def file_names(name: str) -> tuple[str, str]:
    """Both spellings of a data set's file: `hopper_medium-v2.hdf5`, `hopper-medium-v2.hdf5`."""
    task, _, version = name.rpartition("-")
    return f"{task.replace('-', '_')}-{version}.hdf5", f"{name}.hdf5"


def entry_of_file(stem: str) -> Entry | None:
    """The entry of a file, by its name without suffix in either spelling; None if it has none."""
    return CATALOG.get(stem.replace("_", "-"))


def _read_files() -> dict[str, Entry]:
    rows = [line.split() for line in _FILES.strip().splitlines()]
    entries = [Entry(family, quality, int(size), digest) for family, quality, size, digest in rows]
    return {entry.name: entry for entry in entries}


CATALOG = _read_files()
"""Every file that can be downloaded, by the name of the data set."""
