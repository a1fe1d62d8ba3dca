"""A phone pairs, connects, sees events, and resumes; against a real server."""

from tests.support.hub import approval, delta, serving, started


async def test_pair_then_see_events_live(tmp_path):
    async with serving(tmp_path) as server:
        phone = server.phone()
        async with phone.connect(await server.token()) as c:
            said = c.hello_ok.payload
            assert said["protocol_version"] == 1
            assert said["truncated"] is False
            assert said["last_seq"] == 0
            assert said["home_channel"] == "task_home"
            assert said["capabilities"] == ["snapshot"]
            assert said["heartbeat"] == {"interval_s": 25.0, "timeout_s": 10.0}
            assert said["limits"]["max_frame_bytes"] == 1024 * 1024
            assert len(said["credential"]) == 43
            await server.publish(started(), delta("hel"), delta("lo"))
            await c.wait_type("run.delta", 2)
            await c.send("ping")
            await c.wait_type("pong")
        assert [g.type for g in phone.events()] == ["run.started", "run.delta", "run.delta"]


async def test_resume_replays_what_was_missed(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        await server.publish(started(), *(delta(f"{n} ") for n in range(100)))
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is False
            assert "credential" not in c.hello_ok.payload
            await c.wait_type("run.delta", 100)
        await server.publish(delta("last"), approval())
        async with phone.connect() as c:
            await c.wait_type("approval.required")
        text = "".join(g.payload["text"] for g in phone.events("run.delta"))
        assert text == "".join(f"{n} " for n in range(100)) + "last"
        assert not any(g.frame.replay for g in phone.got)
