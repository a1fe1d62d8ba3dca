// Node's `ws` with the broadcast loop of its README, for tests.bench: node server_ws.js PIECES
// It stores nothing; a phone that comes back gets what it missed from a list in memory. It waits
// while a phone has a mebibyte unsent, as memory would grow without end.
"use strict";
const http = require("node:http");
const readline = require("node:readline");
const { WebSocketServer, WebSocket } = require("ws");

const { rest, filling, end } = JSON.parse(process.argv[2]);
const UNSENT = 1 << 20;
const texts = [];

const server = http.createServer();
const wss = new WebSocketServer({ server });
wss.on("connection", (ws) => {
  ws.on("error", () => {});
  ws.once("message", (data) => {
    ws.send('{"ready":true}');
    for (let i = JSON.parse(data).last_seq; i < texts.length; i++) ws.send(texts[i]);
    ws.listening = true;
  });
});

function broadcast(number) {
  const stamp = process.hrtime.bigint().toString().padStart(19, "0");
  const mark = `@${String(number).padStart(10, "0")}.${stamp}`;
  const text = `{"v":1,"seq":${number},"event_id":"e_${number}"${rest}${mark}${filling}${end}`;
  texts.push(text);
  wss.clients.forEach((client) => {
    if (client.readyState === WebSocket.OPEN && client.listening) client.send(text);
  });
}

function congested() {
  for (const client of wss.clients) if (client.bufferedAmount > UNSENT) return true;
  return false;
}

function publish({ first, count, rate, seconds }) {
  const begun = process.hrtime.bigint();
  const since = performance.now();
  let sent = 0;
  const step = () => {
    const passed = (performance.now() - since) / 1000;
    if (sent >= count || passed >= seconds) {
      const ended = process.hrtime.bigint();
      console.log(`{"begun":${begun},"ended":${ended},"last":${first + sent - 1}}`);
      return;
    }
    const due = Math.min(rate ? Math.floor(passed * rate) + 1 : Infinity, count) - sent;
    if (due <= 0 || congested()) {
      setTimeout(step, 1);
      return;
    }
    for (let i = Math.min(due, 16); i > 0; i--) broadcast(first + sent++);
    setImmediate(step);
  };
  step();
}

server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, () => {
  console.log(JSON.stringify({ port: server.address().port }));
});
readline.createInterface({ input: process.stdin }).on("line", (line) => publish(JSON.parse(line)));
