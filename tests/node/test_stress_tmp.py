import random, signal, time
from pathlib import Path
import pytest
import importlib.util
spec = importlib.util.spec_from_file_location("t3", Path(__file__).parent / "test_three_parties.py")
t3 = importlib.util.module_from_spec(spec); spec.loader.exec_module(t3)
theatre, stage = t3.theatre, t3.stage

@pytest.mark.timeout(580)
def test_stress(stage, monkeypatch):
    f = stage.federation
    start = time.monotonic()
    n = 0
    while time.monotonic() - start < 430:
        n += 1
        rng = random.Random(n + int(__import__("os").environ.get("SEED", "0")))
        for told in stage.shared.iterdir():
            told.unlink()
        job = stage.submit(rng.choice(["clinic", "lab"]))
        began = time.monotonic()
        story = []
        for _ in range(rng.randrange(1, 4)):
            time.sleep(rng.random() * 1.2)
            if rng.random() < 0.6: stage.let_it_end(); story.append("enough"); time.sleep(rng.random() * 0.25)
            victims = rng.sample(list(t3.ROLES), rng.choice([1, 1, 1, 2]))
            for v in victims:
                sig = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
                f.kill(v, sig); story.append((v, sig))
            time.sleep(rng.random() * 0.5)
            for v in victims:
                f.start(v)
        stage.let_it_end()
        for name in t3.ROLES:
            limit = time.monotonic() + 25
            while True:
                v = f.view(name, job)
                if v and v["state"] not in ("waiting", "running", "paused"): break
                if not v and name != f.view("clinic", job).get("submitter") and time.monotonic() > limit - 15: break
                assert time.monotonic() < limit, (n, story, name, {x: f.view(x, job) for x in t3.ROLES})
                time.sleep(0.1)
        took = time.monotonic() - began
        states = {x: f.view(x, job).get("state") for x in t3.ROLES}
        print(n, f"{took:.1f}", states, story, flush=True)
        assert set(states.values()) == {"done"}, (n, story, {x: f.view(x, job) for x in t3.ROLES})
