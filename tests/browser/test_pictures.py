"""The pictures of the documentation can be taken, and show what it says about them."""

from __future__ import annotations

from playwright.sync_api import Browser

from helpers.portal_scene import SILENT, portal_scene
from helpers.write_pictures import DECODED, alike, log_in, pictures, smaller, take

TAKEN = "rollout-plan"  # the one for which most is done first


def test_pictures_show_what_the_documentation_says(browser: Browser) -> None:
    with portal_scene() as scene:
        held = scene.maria.get(f"/v1/events/{scene.held}/explain").json()
        assert held["event"]["approved"]["by"] == "shop-team"
        assert [hold["kind"] for hold in held["holds"]] == ["window", "domain"]
        (plan,) = scene.maria.get(f"/v1/hosts/{scene.joint_host}/explain").json()["plans"]
        assert [event["group"] for event in plan["events"]] == ["api", "render", "web"]
        steps = scene.maria.get(f"/v1/rollouts/{scene.rollout}/steps").json()
        assert sorted((step["lane"], step["state"]) for step in steps) == [
            *(("api", state) for state in ("done", "started", "waiting")),
            *(("web", state) for state in ("announced", "done", "waiting")),
        ]
        assert scene.maria.get(f"/v1/machines/{SILENT}").json()["coverage"] == "silent"
        session, blank = log_in(browser, scene), browser.new_page()
        blank.evaluate(DECODED)
        (picture,) = (one for one in pictures(scene) if one.name == TAKEN)
        taken = take(browser, scene, picture, session)
        assert alike(taken, smaller(taken, blank), blank)
        blank.close()
