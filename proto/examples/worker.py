"""A worker in another language: registers in etcd, answers requests, and tells over NATS what it has cached.

    python worker.py --etcd http://127.0.0.1:2379 --nats nats://127.0.0.1:4222 --cluster NAME --worker-id 7

It computes nothing and never evicts: a prompt given as token ids (/v1/completions) is cached, until the cache is full.
README.md beside this folder explains every step. Needs nats-py, grpcio-tools, protobuf and xxhash.
"""
import argparse, asyncio, base64, json, pathlib, random, signal, struct, sys, tempfile, threading, time, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import nats, xxhash
from grpc_tools import protoc

messages, proto = tempfile.TemporaryDirectory(), pathlib.Path(__file__).resolve().parents[1]
if protoc.main(["", f"-I{proto}", f"--python_out={messages.name}", *map(str, proto.glob("switchtower/v1/*.proto"))]):
    sys.exit("the messages do not compile")
sys.path.insert(0, messages.name)
from switchtower.v1 import kv_pb2 as kv, load_pb2 as load  # noqa: E402

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name, default in {"etcd": "http://127.0.0.1:2379", "nats": "nats://127.0.0.1:4222", "cluster": "switchtower",
                      "worker-id": 1, "listen": "127.0.0.1:0", "model": "switchtower-demo", "block-size": 16}.items():
    options.add_argument(f"--{name}", default=default, type=type(default))
options = options.parse_args()
plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
cluster = "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in options.cluster.encode()) or "%"
life, events, EVENTS_MAX, BLOCKS_MAX = random.getrandbits(63), [], 1_000, 50_000
head = {"major": 1, "worker_id": options.worker_id, "incarnation": life}


def etcd(path, **body):
    request = urllib.request.Request(f"{options.etcd}/v3/{path}", json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request, timeout=5))


def register(endpoint):
    """Puts the record under a new lease, as soon as nobody else has the id."""
    record = {"version": 1, "worker_id": options.worker_id, "incarnation": life, "endpoint": endpoint,
              "model": options.model, "block_size": options.block_size, "total_blocks": BLOCKS_MAX}
    key = base64.b64encode(f"/switchtower/{cluster}/workers/{options.worker_id}".encode()).decode()
    lease = etcd("lease/grant", TTL=10)["ID"]
    put = {"key": key, "value": base64.b64encode(json.dumps(record).encode()).decode(), "lease": lease}
    free = {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
    while not etcd("kv/txn", compare=[free], success=[{"request_put": put}]).get("succeeded"):
        time.sleep(1)
        etcd("lease/keepalive", ID=lease)
    return lease


def store(tokens):
    """The prompt's full blocks are cached now; returns the events that tell of it."""
    blocks, size = [], options.block_size
    for at in range(0, len(tokens) - size + 1, size):
        local = xxhash.xxh3_64_intdigest(struct.pack(f"<{size}I", *tokens[at:at + size]), seed=1337)
        blocks.append(xxhash.xxh3_64_intdigest(struct.pack("<QQ", blocks[-1], local), seed=1337) if blocks else local)
    if not blocks or len(events) == EVENTS_MAX or sum(len(event.stored.blocks) for event in events) + len(blocks) > BLOCKS_MAX:
        return []
    events.append(kv.KvEvent(sequence=len(events) + 1, stored=kv.Stored(tier=kv.TIER_DEVICE, blocks=blocks)))
    return events[-1:]


def answer(question):
    """Events from a number on, or the state; all that is cached here fits into one message."""
    wanted, reply = question.WhichOneof("wanted"), kv.RangeReply(major=1)
    if question.rank != 0:
        reply.refusal.reason = kv.Refusal.REASON_NO_SUCH_RANK
    elif wanted == "events_from":
        reply.events.CopyFrom(kv.EventRange(events=events[max(question.events_from, 1) - 1:], last=len(events)))
    elif wanted == "state_after":
        runs = [kv.SnapshotRun(tier=event.stored.tier, blocks=event.stored.blocks) for event in events]
        reply.snapshot.CopyFrom(kv.SnapshotChunk(chunks=1, sequence=len(events), runs=runs))
    else:
        reply.refusal.reason = kv.Refusal.REASON_NOT_UNDERSTOOD
    return reply


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers.get("x-switchtower-incarnation", f"{life:016x}") != f"{life:016x}":
            error = {"message": "this worker has restarted", "type": "invalid_request_error", "code": "incarnation_mismatch"}
            return self.reply(409, {"error": error})
        if isinstance(body.get("prompt"), list) and isinstance(body["prompt"][0], int):
            asyncio.run_coroutine_threadsafe(self.server.publish(body["prompt"]), self.server.loop).result(5)
        chat = "messages" in body
        text = {"message": {"role": "assistant", "content": "hello"}} if chat else {"text": "hello"}
        self.reply(200, {"id": f"{time.time_ns():x}", "object": "chat.completion" if chat else "text_completion",
                         "created": int(time.time()), "model": options.model,
                         "choices": [{"index": 0, "finish_reason": "stop", **text}]})

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(json.dumps(body))))
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


async def main():
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    bus = await nats.connect(options.nats, max_reconnect_attempts=-1)

    async def respond(message):
        await message.respond(answer(kv.RangeRequest.FromString(message.data)).SerializeToString())

    async def publish(tokens):
        if told := store(tokens):
            batch = kv.KvEventBatch(**head, events=told)
            await bus.publish(f"switchtower.{cluster}.kv.events", batch.SerializeToString())

    await bus.subscribe(f"switchtower.{cluster}.kv.range.{options.worker_id}.{life:016x}", cb=respond)
    await bus.flush()
    host, port = options.listen.rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Api)
    server.loop, server.publish = loop, publish
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://{host}:{server.server_port}"
    lease = await asyncio.to_thread(register, endpoint)
    print(f"worker {options.worker_id} is registered at {endpoint}", flush=True)
    while not stop.is_set():
        try:
            report = load.LoadReport(**head, measured_at_ms=time.time_ns() // 1_000_000)
            report.ranks.add(blocks_total=BLOCKS_MAX, kv_sequence=len(events))
            await bus.publish(f"switchtower.{cluster}.loads", report.SerializeToString())
            if "TTL" not in (await asyncio.to_thread(etcd, "lease/keepalive", ID=lease))["result"]:
                lease = await asyncio.to_thread(register, endpoint)
        except (OSError, nats.errors.Error) as error:
            print(f"the cluster does not hear: {error}", file=sys.stderr, flush=True)
        await asyncio.wait([asyncio.ensure_future(stop.wait())], timeout=1)
    await asyncio.to_thread(etcd, "lease/revoke", ID=lease)


asyncio.run(main())
