"""The processes of the jail alone: one reply to each frame, and an exit at the end of the input."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from hashlib import sha256

import pytest
from support.jail_processes import ENVIRONMENT

from sapo_protocol.errors import LocalProtocolError
from sapo_verification.jail.launch import SAMPLE_SEEDS, command, sample_digest
from sapo_verification.jail.messages import (
    HEADER_BYTES,
    MAX_REPLY_BYTES,
    READY,
    TOKEN_BYTES,
    Checked,
    Failure,
    Request,
    Setup,
    decode_reply,
    encode_request,
    encode_setup,
    frame,
    frame_length,
)
from sapo_verification.jail.worker import MAX_CALLS
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.generators import derive, solution

CONVERSION = family("base_conversion", "nano")
UNDERIVABLE = replace(CONVERSION, config=CONVERSION.config.replace('"max_base":10', '"max_base":1'))
HOSTILE = replace(CONVERSION, scorer="hostile/1", max_completion_bytes=512)
SETUP = Setup((HOSTILE,), deadline_seconds=5.0, scorer_modules=("support.hostile_scorers",))


def bodies_of(stream: bytes) -> list[bytes]:
    """Return the bodies of consecutive frames."""
    bodies = []
    while stream:
        end = HEADER_BYTES + frame_length(stream[:HEADER_BYTES], TOKEN_BYTES + MAX_REPLY_BYTES)
        bodies.append(stream[HEADER_BYTES:end])
        stream = stream[end:]
    return bodies


def run(arguments: list[str], bodies: list[bytes]) -> subprocess.CompletedProcess[bytes]:
    """Run a process of the jail to its end with frames as its input."""
    return subprocess.run(
        arguments,
        input=b"".join(map(frame, bodies)),
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
    )


def replies_of_worker(requests: list[Request], *, setup: Setup = SETUP) -> list[Checked | Failure]:
    """Send a worker all requests at once, and return its replies."""
    done = run(command("serve"), [encode_setup(setup), *map(encode_request, requests)])
    assert done.returncode == 0
    ready, *replies = bodies_of(done.stdout)
    assert ready == READY
    return [
        decode_reply(reply, len(request.completions))
        for request, reply in zip(requests, replies, strict=True)
    ]


def crime(name: str) -> Request:
    return Request(0, 1, (name.encode(),))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's filters are Linux's")
def test_a_worker_answers_every_request_although_children_die() -> None:
    prompt = derive(HOSTILE, 1).prompt
    honest, forged = Checked(prompt, (1.0,)), Checked("x", (0.0,))
    outcomes: list[tuple[str, Checked | Failure]] = [
        ("honest", honest),
        ("exit_at_once", Failure.CRASH),
        ("honest", honest),
        ("spin", Failure.TIMEOUT),
        ("announce_too_much", Failure.MALFORMED),
        ("guess_the_token", Failure.MALFORMED),
        ("pay_itself_more", Failure.MALFORMED),
        ("prepare_the_next_reply", forged),
        ("honest", Failure.MALFORMED),
        ("stop_reading", forged),
        ("honest", Failure.CRASH),
        ("honest", honest),
    ]
    replies = replies_of_worker([crime(name) for name, _ in outcomes])
    assert replies == [reply for _, reply in outcomes]


@pytest.mark.skipif(sys.platform != "linux", reason="processor time of another process is Linux's")
def test_the_deadline_is_of_processor_time_and_a_tenth_of_the_longest_wait() -> None:
    """An answer for which the node had less time than its own slowness took is held against nobody."""
    prompt = derive(HOSTILE, 1).prompt
    outcomes: list[tuple[str, Checked | Failure]] = [
        ("dawdle:1.0", Checked(prompt, (1.0,))),
        ("block", Failure.NODE_BUSY),
        ("spin", Failure.TIMEOUT),
        ("honest", Checked(prompt, (1.0,))),
    ]
    replies = replies_of_worker(
        [crime(name) for name, _ in outcomes], setup=replace(SETUP, deadline_seconds=0.5)
    )
    assert replies == [reply for _, reply in outcomes]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's filters are Linux's")
def test_a_worker_outlives_its_children() -> None:
    calls = MAX_CALLS + 1
    requests = [Request(0, seed, ()) for seed in range(calls)]
    assert replies_of_worker(requests) == [Checked(derive(HOSTILE, seed).prompt, ()) for seed in range(calls)]


def test_a_family_without_items_is_underivable_and_no_failure() -> None:
    setup = Setup((CONVERSION, UNDERIVABLE), deadline_seconds=10.0, scorer_modules=())
    replies = replies_of_worker([Request(1, 5, ()), Request(0, 5, ())], setup=setup)
    assert replies == [Failure.UNDERIVABLE, Checked(derive(CONVERSION, 5).prompt, ())]
    texts = [UNDERIVABLE.name, *("" for _ in SAMPLE_SEEDS)]
    assert sample_digest((UNDERIVABLE,)) == sha256(json.dumps(texts).encode()).digest()


def test_a_worker_without_one_working_call_ends_with_a_message() -> None:
    setup = Setup((CONVERSION,), deadline_seconds=0.0, scorer_modules=())
    done = run(command("serve"), [encode_setup(setup)])
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == "a jailed checker does not work on this machine (timeout)\n"


def test_a_worker_that_cannot_start_is_a_local_error() -> None:
    unknown = replace(CONVERSION, scorer="no such scorer/1")
    with pytest.raises(LocalProtocolError, match="the checker process failed: KeyError"):
        sample_digest((unknown,))


WITHOUT_REST = """
import sys
from sapo_verification.jail.messages import *
from sapo_verification.jail.worker import JailWorker
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.scorers import SCORERS
from support import hostile_scorers
SCORERS.update(hostile_scorers.SCORERS)
setup = decode_setup(sys.stdin.buffer.read())
worker = JailWorker(setup.families, setup.deadline_seconds)
for crime in ("exit_at_once", "honest", "exit_at_once"):
    print(worker.relay(encode_request(Request(0, 1, (crime.encode(),)))).decode())
worker.close()
"""
"""A worker whose children are only replaced when the next request needs one."""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's filters are Linux's")
def test_a_worker_replaces_children_on_request_and_ends_without_a_child() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_REST],
        input=encode_setup(SETUP),
        env=ENVIRONMENT,
        capture_output=True,
        check=True,
    )
    replies = [decode_reply(line, 1) for line in done.stdout.splitlines()]
    assert replies == [Failure.CRASH, Checked(derive(HOSTILE, 1).prompt, (1.0,)), Failure.CRASH]


SERVE = """
import json, os, sys
from sapo_protocol.suite import Family
from sapo_verification.jail import child as jail_child
os.dup2(0, jail_child.REQUESTS)
os.dup2(1, jail_child.REPLIES)
jail_child.serve((Family(**json.loads(sys.argv[1])),))
"""
"""The child without its sandbox."""


def test_a_child_answers_until_its_pipe_ends() -> None:
    items = [(seed, derive(CONVERSION, seed)) for seed in (1, 2, 3)]
    answers = [str(solution(CONVERSION, item)).encode() for _, item in items]
    requests = [Request(0, seed, (answers[0], b"no idea")) for seed, _ in items]
    tokens = [bytes([seed]) * TOKEN_BYTES for seed, _ in items]
    bodies = [token + encode_request(each) for token, each in zip(tokens, requests, strict=True)]
    done = run([sys.executable, "-c", SERVE, json.dumps(asdict(CONVERSION))], bodies)
    assert done.returncode == 0
    replies = [(body[:TOKEN_BYTES], decode_reply(body[TOKEN_BYTES:], 2)) for body in bodies_of(done.stdout)]
    earned = [(float(answer == answers[0]), 0.0) for answer in answers]
    prompts = [item.prompt for _, item in items]
    assert replies == [
        (token, Checked(*reply))
        for token, reply in zip(tokens, zip(prompts, earned, strict=True), strict=True)
    ]
