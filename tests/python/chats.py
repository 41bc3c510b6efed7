"""Conversations of every kind that templates tell apart; data for the parity tests."""

import itertools

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, e.g. \"Zürich\" <now> & later",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": None},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 14.0},
                "where": {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "boolean"}}]},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments, identity="call00001"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


SYSTEM = say("system", "You are a helpful assistant.\n  Be brief.  ")
HELLO = say("user", "Hello, who are you?")
ANSWER = say("assistant", "I am the switch tower.")
THOUGHT = say("assistant", "<think>\nhm, numbers\n</think>\n\nFour.")
REASONED = say("assistant", "Four.", reasoning_content="two and two")
UNICODE = say("user", "naïve 東京 🦀 <|im_end|> {{ x }} {% y %} 'q' \"d\" \\n \t end\n")
RESULT = say("tool", '{"sky": "grey", "°C": 11.5}', tool_call_id="call00001", name="get_weather")
CALLING = say("assistant", "", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2, "flags": [True, None, 1.5]})])
CALLING_NULL = say("assistant", None, tool_calls=[call("clock", {})])
CALLING_TEXT = say("assistant", "Let me look.", tool_calls=[call("get_weather", '{"city": "Bern"}')])
CALLING_TWICE = say("assistant", "", tool_calls=[call("clock", {}), call("get_weather", {"city": "Basel"}, "call00002")])
PARTS = say("user", [{"type": "text", "text": "first "}, {"type": "text", "text": "second"}])
IMAGE = say("user", [{"type": "image"}, {"type": "text", "text": "what is this?"}])

CONVERSATIONS = {
    "hello": [HELLO],
    "system": [SYSTEM, HELLO],
    "developer": [say("developer", "Answer in German."), HELLO],
    "turns": [SYSTEM, HELLO, ANSWER, say("user", "And now?")],
    "long": [SYSTEM] + [HELLO, ANSWER] * 6 + [say("user", "The end?")],
    "ends_with_assistant": [HELLO, ANSWER],
    "empty_user": [say("user", "")],
    "empty_system": [say("system", ""), HELLO],
    "spaces": [say("user", "  padded \n\n"), say("assistant", "\n padded too "), say("user", "\t")],
    "unicode": [SYSTEM, UNICODE, say("assistant", "ok 👩‍👩‍👧"), say("user", "مرحبا")],
    "thought": [HELLO, THOUGHT, say("user", "Sure?")],
    "reasoned": [HELLO, REASONED, say("user", "Sure?"), REASONED],
    "two_users": [HELLO, HELLO],
    "late_system": [HELLO, ANSWER, SYSTEM, HELLO],
    "two_systems": [SYSTEM, say("system", "Really."), HELLO],
    "assistant_first": [ANSWER, HELLO],
    "odd_role": [say("critic", "bad"), HELLO],
    "call": [SYSTEM, HELLO, CALLING, RESULT],
    "call_null": [HELLO, CALLING_NULL, RESULT, ANSWER, HELLO],
    "call_text": [HELLO, CALLING_TEXT, RESULT, ANSWER],
    "calls": [HELLO, CALLING_TWICE, RESULT, say("tool", "noon", tool_call_id="call00002", name="clock"), ANSWER, HELLO],
    "parts": [SYSTEM, PARTS, ANSWER, HELLO],
    "image": [IMAGE],
    "no_messages": [],
}


def cases():
    """(name, messages, tools, add_generation_prompt, kwargs) for every conversation, with and without tools."""
    for (name, messages), tools, prompt in itertools.product(CONVERSATIONS.items(), (None, [WEATHER, CLOCK]), (True, False)):
        label = f"{name}{'+tools' if tools else ''}{'+prompt' if prompt else ''}"
        yield label, messages, tools, prompt, {}
    for name, value in [("enable_thinking", False), ("enable_thinking", True), ("thinking", True), ("reasoning_effort", "high")]:
        yield f"turns+{name}={value}", CONVERSATIONS["turns"], None, True, {name: value}
