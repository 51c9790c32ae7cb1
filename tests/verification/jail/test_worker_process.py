"""The processes of the jail by themselves: frames in, one reply to each, and an end with the input."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from sapo_verification.jail.launch import command, environment
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
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.generators import derive, solution

CONVERSION = family("base_conversion", "nano")
HOSTILE = replace(CONVERSION, scorer="hostile/1", max_completion_bytes=512)

ENVIRONMENT = {**os.environ, **environment()}
"""With the variables by which coverage is measured in child processes, where it is."""


def bodies_of(stream: bytes) -> list[bytes]:
    """Return the bodies of consecutive frames."""
    bodies = []
    while stream:
        end = HEADER_BYTES + frame_length(stream[:HEADER_BYTES], TOKEN_BYTES + MAX_REPLY_BYTES)
        bodies.append(stream[HEADER_BYTES:end])
        stream = stream[end:]
    return bodies


def replies_of_worker(requests: list[Request]) -> list[Checked | Failure]:
    """Send a worker all requests at once, and return its replies."""
    setup = Setup((HOSTILE,), deadline_seconds=0.5, scorer_modules=("support.hostile_scorers",))
    frames = map(frame, [encode_setup(setup), *map(encode_request, requests)])
    done = subprocess.run(
        command("serve"),
        input=b"".join(frames),
        env=ENVIRONMENT,
        capture_output=True,
        check=True,
        timeout=120,
    )
    ready, *replies = bodies_of(done.stdout)
    assert ready == READY
    return [
        decode_reply(reply, len(request.completions))
        for request, reply in zip(requests, replies, strict=True)
    ]


def crime(name: str) -> Request:
    return Request(0, 1, (name.encode(),))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's walls are Linux's")
def test_a_worker_answers_every_request_whatever_becomes_of_its_children() -> None:
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


SERVE = """
import json, os, sys
from sapo_protocol.suite import Family
from sapo_verification.jail import child as jail_child
os.dup2(0, jail_child.REQUESTS)
os.dup2(1, jail_child.REPLIES)
jail_child.serve((Family(**json.loads(sys.argv[1])),))
"""
"""The child without its walls."""


def test_a_child_answers_until_its_pipe_ends() -> None:
    items = [(seed, derive(CONVERSION, seed)) for seed in (1, 2, 3)]
    answers = [str(solution(CONVERSION, item)).encode() for _, item in items]
    requests = [Request(0, seed, (answers[0], b"no idea")) for seed, _ in items]
    tokens = [bytes([seed]) * TOKEN_BYTES for seed, _ in items]
    frames = [frame(token + encode_request(each)) for token, each in zip(tokens, requests, strict=True)]
    done = subprocess.run(
        [sys.executable, "-c", SERVE, json.dumps(asdict(CONVERSION))],
        input=b"".join(frames),
        env=ENVIRONMENT,
        capture_output=True,
        check=True,
        timeout=120,
    )
    replies = [(body[:TOKEN_BYTES], decode_reply(body[TOKEN_BYTES:], 2)) for body in bodies_of(done.stdout)]
    earned = [(float(answer == answers[0]), 0.0) for answer in answers]
    prompts = [item.prompt for _, item in items]
    assert replies == [
        (token, Checked(*reply))
        for token, reply in zip(tokens, zip(prompts, earned, strict=True), strict=True)
    ]
