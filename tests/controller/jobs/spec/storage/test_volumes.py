from __future__ import annotations

import pytest

from controller.jobs.spec.field_types import parse_path
from controller.jobs.spec.model import Owner
from controller.jobs.spec.storage import ClaimPath, find_place, parse_volumes

ADA = Owner(user="ada", project="sun")
RAW = "home=home-{user}, sets=datasets/public:ro, team=cephfs/projects/{project}"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/home", ClaimPath(claim="home-ada", folder="", sub_path="", read_only=False)),
        ("/home/x/y", ClaimPath(claim="home-ada", folder="", sub_path="x/y", read_only=False)),
        (
            "/sets/mnist",
            ClaimPath(claim="datasets", folder="public", sub_path="public/mnist", read_only=True),
        ),
        (
            "/team/a",
            ClaimPath(
                claim="cephfs", folder="projects/sun", sub_path="projects/sun/a", read_only=False
            ),
        ),
    ],
)
def test_a_path_is_resolved_in_its_owners_claim(path: str, place: ClaimPath) -> None:
    assert find_place(parse_path(path), ADA, parse_volumes(RAW)) == place


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/elsewhere/x", ADA),
        ("/home/x", Owner(user="Ada")),
        ("/home/x", Owner(user="a/b")),
        ("/team/x", Owner(user="ada")),
        ("/team/x", Owner(user="ada", project="..")),
        ("/team/x", Owner(user="ada", project="a/b")),
        ("/team/x", Owner(user="ada", project="a/")),
        ("/team/x", Owner(user="ada", project=".")),
    ],
)
def test_an_owner_name_that_escapes_the_volume_is_refused(path: str, owner: Owner) -> None:
    with pytest.raises(ValueError, match=r"volume|owner|path"):
        find_place(parse_path(path), owner, parse_volumes(RAW))


@pytest.mark.parametrize(
    "raw",
    ["home", "home=", "=x", "a=x,a=y", "a=X", "a=x/{team}", "a=x/../y", "a=x//y", "a b=x",
     "a={user}{project}", "a=x/{user}-{project}"],
)  # fmt: skip
def test_an_error_in_the_volume_list_is_reported(raw: str) -> None:
    with pytest.raises(ValueError, match=r".+: .+"):
        parse_volumes(raw)


def test_every_error_is_reported() -> None:
    with pytest.raises(ValueError, match=r"(?s)a=X.*b=Y"):
        parse_volumes("a=X,b=Y")


def test_an_unknown_volume_is_reported_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no volume nope; there are: a, b$"):
        find_place(parse_path("/nope/x"), ADA, parse_volumes("b=one,a=two"))
    with pytest.raises(ValueError, match=r"there are: none$"):
        find_place(parse_path("/nope/x"), ADA, {})
