"""/health and /internal/pair/new."""

import asyncio

import aiohttp
import pytest

from loomid.lmp import pairing
from tests.support.hub import ADMIN_TOKEN, serving

BEARER = {"Authorization": f"Bearer {ADMIN_TOKEN}"}


@pytest.fixture
async def http(tmp_path):
    async with serving(tmp_path) as server, aiohttp.ClientSession() as session:
        session.server = server
        yield session


def url(http, path):
    return f"http://{http.server.host}:{http.server.port}{path}"


async def test_health(http):
    async with http.get(url(http, "/health")) as response:
        assert response.status == 200
        assert await response.json() == {"ok": True, "v": 1}
        assert response.headers["Server"] == "loomid"


@pytest.mark.parametrize("path", ["/", "/ws/", "/internal", "/internal/pair/new"])
async def test_nothing_else_is_there(http, path):
    async with http.get(url(http, path)) as response:
        assert response.status in (404, 405)


async def test_ws_wants_an_upgrade(http):
    async with http.get(url(http, "/ws")) as response:
        assert response.status == 400


async def test_a_script_gets_a_token_that_pairs(http):
    async with http.post(url(http, "/internal/pair/new"), headers=BEARER) as response:
        assert response.status == 200
        assert response.headers["Cache-Control"] == "no-store"
        qr = await response.json()
    assert {"v", "url", "token", "name", "fp"} <= set(qr)
    async with http.server.phone().connect(qr["token"]):
        pass


async def test_name_ttl_and_scopes_may_be_given(http):
    async with http.post(
        url(http, "/internal/pair/new"),
        headers=BEARER,
        json={"name": "Ann's", "ttl": 60, "scopes": ["admin"]},
    ) as response:
        qr = await response.json()
    phone = http.server.phone()
    async with phone.connect(qr["token"]):
        (status,) = http.server.hub.desk.devices()
        assert (status.device.name, status.connected) == ("Ann's", True)
        assert status.device.scopes == ("view", "admin")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Authorization": "Bearer wrong"}, 403),
        ({"Authorization": f"Basic {ADMIN_TOKEN}"}, 403),
        ({**BEARER, "X-Forwarded-For": "127.0.0.1"}, 404),
        ({**BEARER, "X-Forwarded-Host": "a"}, 404),
        ({**BEARER, "x-forwarded-anything": "a"}, 404),
        ({**BEARER, "Forwarded": "for=127.0.0.1"}, 404),
        ({**BEARER, "X-Real-IP": "127.0.0.1"}, 404),
        ({**BEARER, "Via": "1.1 proxy"}, 404),
        ({**BEARER, "Origin": "http://localhost"}, 404),
        ({**BEARER, "Origin": "null"}, 404),
        ({**BEARER, "Sec-Fetch-Site": "cross-site"}, 404),
        ({**BEARER, "Referer": "http://localhost/"}, 404),
        ({**BEARER, "X-Original-Forwarded-For": "127.0.0.1"}, 404),
        ({**BEARER, "CF-Connecting-IP": "127.0.0.1"}, 404),
        ({**BEARER, "True-Client-IP": "127.0.0.1"}, 404),
        ({**BEARER, "Host": "a@localhost"}, 404),
        ({**BEARER, "Host": "localhost/a"}, 404),
        ({**BEARER, "Host": ""}, 404),
        ({**BEARER, "Host": "hermes.example.com"}, 404),
        ({**BEARER, "Host": "127.0.0.1.example.com"}, 404),
        ({**BEARER, "Host": "[::1"}, 404),
        ({**BEARER, "Host": "localhost:1"}, 200),
        ({**BEARER, "Host": "[::1]"}, 200),
        ({**BEARER, "Host": "[::1]:80"}, 200),
    ],
)
async def test_who_may_make_tokens(http, headers, status):
    async with http.post(url(http, "/internal/pair/new"), headers=headers) as response:
        assert response.status == status


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        '{"ttl":"long"}',
        '{"name":5}',
        '{"scopes":["root"]}',
        '{"scopes":"view"}',
        '{"name":"\\u001b[31m"}',
        '{"name":"\\u0000"}',
        '{"name":"' + "x" * 65 + '"}',
    ],
)
async def test_a_wrong_body(http, body):
    async with http.post(url(http, "/internal/pair/new"), headers=BEARER, data=body) as response:
        assert response.status == 400


async def test_outcome_of_a_token(tmp_path):
    async with serving(tmp_path) as server, asyncio.TaskGroup() as tasks:
        token, _ = await server.hub.desk.mint("x", 300)
        waiting = tasks.create_task(server.hub.desk.outcome(token.hash))
        phone = server.phone()
        async with phone.connect(token.reveal()):
            assert (await waiting).device_id == phone.device_id
        assert (await server.hub.desk.outcome(token.hash)).device_id == phone.device_id
        unused, _ = await server.hub.desk.mint(None, 1)
        assert await server.hub.desk.outcome(unused.hash) is None
        with pytest.raises(KeyError):
            await server.hub.desk.outcome(b"no such")


async def test_a_token_outlives_a_restart(tmp_path):
    async with serving(tmp_path) as server:
        used, _ = await server.hub.desk.mint("Ann's", 300)
        early = server.phone()
        async with early.connect(used.reveal()):
            pass
        waits, _ = await server.hub.desk.mint("Bob's", 300)
    async with serving(tmp_path) as server, asyncio.TaskGroup() as tasks:
        assert (await server.hub.desk.outcome(used.hash)).device_id == early.device_id
        waiting = tasks.create_task(server.hub.desk.outcome(waits.hash))
        async with server.phone().connect(waits.reveal()):
            assert (await waiting).name == "Bob's"
        assert await server.hub.desk.revoke(early.device_id)
    async with serving(tmp_path) as server:
        assert await server.hub.desk.outcome(used.hash) is None


def test_the_qr_is_what_the_app_scans():
    token = pairing.mint(bytes(32))
    qr = pairing.qr("wss://h/ws", token, "host", "")
    assert qr == {"v": 1, "url": "wss://h/ws", "token": token.reveal(), "name": "host", "fp": ""}
