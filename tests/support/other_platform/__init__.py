"""A second chat platform inside the gateway process, with a door for tests (JSON lines).

It stands for Telegram and the like: prompts go to its own adapter. Its door also does
what only the inside of the process can: reload plugins, connect again, run guarded
commands in threads.
"""

import asyncio
import json
import os
import sys
import threading

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType, SendResult


class OtherAdapter(BasePlatformAdapter):
    """Sends go to a list."""

    def __init__(self, config):
        super().__init__(config=config, platform=Platform("other"))
        self.sent = []
        self.server = None

    async def connect(self, *, is_reconnect=False):
        path = os.environ["OTHER_DOOR"]
        if os.path.exists(path):
            os.unlink(path)
        self.server = await asyncio.start_unix_server(self.serve, path)
        self._mark_connected()
        return True

    async def disconnect(self):
        self.server.close()
        self._mark_disconnected()

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        self.sent.append([chat_id, content])
        return SendResult(success=True, message_id=f"other-{len(self.sent)}")

    async def send_exec_approval(self, chat_id, command, session_key, **more):
        self.sent.append([chat_id, f"approval: {command}"])
        return SendResult(success=True, message_id=f"other-{len(self.sent)}")

    async def _send_exec_approval_prompt(self, prompt):
        self.sent.append([prompt.chat_id, f"approval: {prompt.command}"])
        return SendResult(success=True, message_id=f"other-{len(self.sent)}")

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm"}

    # ── the door ──

    async def serve(self, reader, writer):
        try:
            while line := await reader.readline():
                request = json.loads(line)
                try:
                    answer = {"ok": await getattr(self, "do_" + request.pop("do"))(**request)}
                except Exception as error:
                    answer = {"error": repr(error)}
                writer.write(json.dumps(answer, default=repr).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()

    def loomi(self):
        adapters = self.gateway_runner.adapters
        return next(a for p, a in adapters.items() if p.value == "loomi")

    async def do_inject(self, text, chat_id="room", user_id="someone", message_id="o1"):
        source = self.build_source(
            chat_id=chat_id,
            chat_type="dm",
            user_id=user_id,
            user_name="Someone",
            message_id=message_id,
        )
        await self.handle_message(
            MessageEvent(
                text=text, message_type=MessageType.TEXT, source=source, message_id=message_id
            )
        )

    async def do_sent(self):
        return self.sent

    async def do_reload(self):
        from hermes_cli.plugins import discover_plugins

        await asyncio.to_thread(discover_plugins, force=True)

    async def do_reconnect(self):
        loomi = self.loomi()
        await loomi.disconnect()
        await loomi.disconnect()
        return await loomi.connect(is_reconnect=True)

    async def do_connect_again(self):
        return await self.loomi().connect(is_reconnect=True)

    async def do_disconnect(self):
        """How often the loop came round meanwhile."""
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.01)

        counter = asyncio.get_running_loop().create_task(count())
        await self.loomi().disconnect()
        counter.cancel()
        return turns

    async def do_state(self):
        state = sys.modules["_hermes_shim_state"]
        return {
            "boot": state.boot,
            "link": id(state.link),
            "link_state": state.link.state,
            "approvals": list(state.approvals),
        }

    async def do_restoring(self, flag):
        """As during the restore at start."""
        self.gateway_runner._startup_restore_in_progress = flag

    async def do_queue(self, session_key):
        runner, loomi = self.gateway_runner, self.loomi()
        head = loomi._pending_messages.get(session_key)
        events = [head, *runner._queued_events.get(session_key, ()), *loomi._waiting(session_key)]
        return [[e.message_id, e.text] for e in events if e]

    async def do_interrupt_late(self, session_key, times):
        """What clears an interrupt at the end of a turn is so often too early for the shim's."""
        agent = await self.loomi()._agent(session_key)
        turn = sys.modules["_hermes_shim_state"].turns[agent._current_turn_id]
        clear = agent.clear_interrupt

        def late(**more):
            nonlocal times
            cleared = clear(**more)
            if times:
                times, turn.stopped = times - 1, agent
                agent.interrupt()
            return cleared

        agent.clear_interrupt = late

    async def do_fail_after(self, method):
        """A method of the gateway does its work and then fails, once."""
        runner = self.gateway_runner
        real = getattr(runner, method)

        async def failing(*args):
            delattr(runner, method)
            await real(*args)
            raise OSError("failed midway")

        setattr(runner, method, failing)

    async def do_wake(self, chat_id, text):
        """As /loop does it, when a time has come."""
        loomi = self.loomi()
        source = loomi.build_source(chat_id=chat_id, chat_type="dm", user_id="loomi")
        await loomi.handle_message(MessageEvent(text=text, source=source, internal=True))

    async def do_deliver(self, chat_id, text):
        """As the cron scheduler does it."""
        from gateway.delivery import DeliveryTarget

        router = self.gateway_runner.delivery_router
        target = DeliveryTarget.parse(f"loomi:{chat_id}")
        return repr(await router.deliver(text, [target], metadata={"job_id": "job7"}))

    async def do_hand(self, method, **arguments):
        """Have our adapter send a file."""
        return (await getattr(self.loomi(), method)(**arguments)).success

    async def do_guard(
        self, session_key, commands, fail_notify=False, together=False, one_text=False
    ):
        """Dangerous commands of one session, each in a thread of its own, at once.

        `together`: all are in Hermes' queue before the first hook is called. `one_text`: they
        are one object, too.
        """
        from tools import approval

        if one_text:
            commands = commands[:1] * len(commands)

        # Where 0.22 keeps it, and where the others do.
        hooks = sys.modules.get("tools.approval_context", approval)
        at_once = hooks._fire_approval_hook
        all_queued = threading.Barrier(
            len(commands), lambda: setattr(hooks, "_fire_approval_hook", at_once)
        )

        def after_all(name, **more):
            all_queued.wait(10)
            at_once(name, **more)

        if together:
            hooks._fire_approval_hook = after_all

        def one(command):
            data = {
                "command": command,
                "description": "test",
                "pattern_key": command,
                "pattern_keys": [command],
            }

            def notify(_data):
                if fail_notify:
                    raise OSError("no way to ask")

            self.answers[command] = approval._await_gateway_decision(session_key, notify, data)
            if fail_notify:
                from hermes_cli.plugins import invoke_hook

                invoke_hook("post_tool_call", tool_name="terminal", args={}, tool_call_id="c9")

        self.answers = {}
        self.threads = [threading.Thread(target=one, args=(c,), daemon=True) for c in commands]
        for thread in self.threads:
            thread.start()

    async def do_answers(self):
        return self.answers

    async def do_card(self, session_key, chat_id, timeout):
        """A card of the clarify tool without a call that any hook told of."""
        from tools import clarify_gateway

        clarify_gateway.register("card-1", session_key, "Which?", ["a", "b"])
        card = {"question": "Which?", "choices": ["a", "b"], "clarify_id": "card-1"}
        await self.loomi().send_clarify(chat_id=chat_id, session_key=session_key, **card)
        wait = clarify_gateway.wait_for_response
        threading.Thread(target=wait, args=("card-1", timeout), daemon=True).start()

    async def do_ask_confirm(self, session_key):
        """A pending slash confirmation, as a bare /new leaves it."""
        from tools import slash_confirm

        async def handler(choice):
            self.sent.append(["confirm", choice])
            return

        slash_confirm.register(session_key, "confirm-1", "new", handler)

    async def do_clear_confirm(self, session_key):
        from tools import slash_confirm

        slash_confirm.clear(session_key)


def register(ctx):
    ctx.register_platform(
        name="other",
        label="Other",
        adapter_factory=OtherAdapter,
        check_fn=lambda: True,
        allow_all_env="OTHER_ALLOW_ALL_USERS",
    )
