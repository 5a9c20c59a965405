# SPDX-License-Identifier: Apache-2.0
"""Structured outputs as the official clients ask for them: schemas that they make of classes, strict tools, guided fields."""

import enum
import json
import re
import threading
import unittest
from typing import List, Literal, Optional, Union

import openai
import pydantic

from support import MODEL, Raw, anthropic_client, events, eventually, metric, openai_client, post

OFF = {"thinking": {"type": "disabled"}}
ASK = [{"role": "user", "content": "Make up an example, as JSON."}]


class Color(str, enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(pydantic.BaseModel):
    color: Color
    sizes: List[Literal[1, 2, 3]] = pydantic.Field(max_length=3)
    note: Optional[Literal["new", "old"]]


class Node(pydantic.BaseModel):
    next: Optional["Node"]


class Sign(pydantic.BaseModel):
    """Without limits of length, which Anthropic's client leaves out of the schema that it sends."""

    color: Color
    lit: Optional[bool]


class Thing(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    first: Part
    other: Optional[Part]
    either: Union[bool, Color]


def tools(*models, strict=True):
    made = [openai.pydantic_function_tool(model) for model in models]
    for tool in made:
        tool["function"]["strict"] = strict
    return made


class OpenAITest(unittest.TestCase):
    def setUp(self):
        self.client = openai_client()

    def parse(self, **more):
        return self.client.chat.completions.parse(
            **{"model": MODEL, "messages": ASK, "temperature": 1, "seed": 1, "max_tokens": 1500, "extra_body": OFF, **more}
        )

    def answer(self, seed, response_format):
        return self.client.chat.completions.create(
            model=MODEL, messages=ASK, temperature=1, seed=seed, max_tokens=300, extra_body=OFF, response_format=response_format
        ).choices[0]

    def test_classes_with_defs_unions_and_enums(self):
        for more in ({}, {"extra_body": {}}, {"n": 3}, {"logprobs": True}):
            for choice in self.parse(response_format=Thing, **more).choices:
                self.assertEqual(choice.finish_reason, "stop")
                self.assertIsInstance(choice.message.parsed, Thing)

    def test_recursion(self):
        """A schema that refers to itself; the answer may be as deep as the model likes, so it may be cut."""
        for seed in range(4):
            answer = self.answer(seed, openai.lib._parsing.type_to_response_format_param(Node))
            text = answer.message.content
            if answer.finish_reason == "stop":
                Node.model_validate_json(text)
            else:
                self.assertRegex(text, r'^(\{\s*("next":)? ?)+$')

    def test_streamed(self):
        with self.client.chat.completions.stream(
            model=MODEL, messages=ASK, temperature=1, seed=1, max_tokens=1500, response_format=Thing, extra_body=OFF
        ) as stream:
            parsed = stream.get_final_completion().choices[0].message.parsed
        self.assertEqual(parsed, self.parse(response_format=Thing).choices[0].message.parsed)

    def test_choices_streamed_are_the_whole_answer(self):
        body = {"model": MODEL, "messages": ASK, "seed": 9, "n": 3, "max_tokens": 300, **OFF}
        body["response_format"] = openai.lib._parsing.type_to_response_format_param(Part)
        whole = post("/v1/chat/completions", body)[1]["choices"]
        texts = [""] * 3
        for _, data in events("/v1/chat/completions", body):
            for choice in data["choices"] if data != "[DONE]" else ():
                texts[choice["index"]] += choice["delta"].get("content") or ""
        self.assertEqual(texts, [choice["message"]["content"] for choice in whole])
        for text in texts:
            Part.model_validate_json(text)

    def test_several_calls_at_once(self):
        """Where more than one call may come, each follows its tool's schema; a tool that is not asked for is not called."""
        seen = set()
        for seed in range(6):
            answer = self.client.chat.completions.create(
                model=MODEL,
                messages=ASK,
                tools=tools(Part, Thing),
                tool_choice="required",
                temperature=1,
                seed=seed,
                max_tokens=600,
                extra_body=OFF,
            ).choices[0]
            calls = answer.message.tool_calls
            seen.add(len(calls))
            for call in calls if answer.finish_reason == "tool_calls" else calls[:-1]:
                {"Part": Part, "Thing": Thing}[call.function.name].model_validate_json(call.function.arguments)
        self.assertTrue(seen)

    def test_a_call_or_the_format(self):
        """Tools that may be called, and a format for the answer without a call."""
        for seed in range(6):
            choice = self.parse(response_format=Part, tools=tools(Part), seed=seed, max_tokens=300).choices[0]
            if choice.message.tool_calls:
                self.assertIsInstance(choice.message.tool_calls[0].function.parsed_arguments, Part)
            else:
                self.assertIsInstance(choice.message.parsed, Part)

    def test_responses(self):
        for effort in ("none", "high"):
            answer = self.client.responses.parse(
                model=MODEL,
                input=ASK[0]["content"],
                text_format=Thing,
                temperature=1,
                max_output_tokens=1500,
                reasoning={"effort": effort},
                extra_body={"seed": 1},
            )
            self.assertIsInstance(answer.output_parsed, Thing)

    def test_strict_tools_of_classes(self):
        for choice in ("required", {"type": "function", "function": {"name": "Part"}}):
            for extra in (OFF, {}):
                message = self.parse(tools=tools(Part), tool_choice=choice, extra_body=extra, parallel_tool_calls=False).choices[0].message
                self.assertEqual([type(call.function.parsed_arguments) for call in message.tool_calls], [Part])

    def test_strict_tools_beside_others(self):
        both = tools(Part) + tools(Thing, strict=False)
        answer = self.client.chat.completions.create(
            model=MODEL,
            messages=ASK,
            tools=both,
            tool_choice="required",
            temperature=1,
            seed=2,
            max_tokens=1500,
            parallel_tool_calls=False,
            extra_body=OFF,
        )
        call = answer.choices[0].message.tool_calls[0].function
        {"Part": Part, "Thing": Thing}[call.name].model_validate_json(call.arguments)

    def test_responses_tool_by_name(self):
        schema = tools(Part)[0]["function"]["parameters"]
        answer = self.client.responses.create(
            model=MODEL,
            input="Go",
            tools=[{"type": "function", "name": "f", "strict": True, "parameters": schema}],
            tool_choice={"type": "function", "name": "f"},
            temperature=1,
            max_output_tokens=1500,
            parallel_tool_calls=False,
            reasoning={"effort": "none"},
            extra_body={"seed": 1},
        )
        Part.model_validate_json(answer.output[0].arguments)

    def test_what_strict_mode_refuses_is_named(self):
        def refusal(schema):
            body = {
                "model": MODEL,
                "messages": ASK,
                "response_format": {"type": "json_schema", "json_schema": {"name": "t", "strict": True, "schema": schema}},
            }
            status, answer = post("/v1/chat/completions", body)
            self.assertEqual(status, 400, answer)
            return answer["error"]["message"]

        at = "/response_format/json_schema/schema"
        inner = {"type": "object", "properties": {"a": {"type": "integer"}}}
        for schema, place in (
            ({**inner, "additionalProperties": True}, "/additionalProperties"),
            ({**inner, "required": []}, "/required"),
            ({"type": "object", "properties": {"x": {**inner, "additionalProperties": {}}}}, "/properties/x/additionalProperties"),
            ({"type": "object", "properties": {"x": {"type": "array"}}}, "/properties/x/items"),
            ({"type": "array", "items": inner}, ""),
            ({"type": "object", "properties": {"x": {}}}, "/properties/x"),
        ):
            self.assertTrue(refusal(schema).startswith(at + place + ": ") or refusal(schema).startswith(at + place + " "), refusal(schema))

    def test_keywords_stay_in_force(self):
        """What strict mode knows nothing of is enforced, not dropped."""
        schema = {
            "type": "object",
            "properties": {
                "s": {"type": "string", "minLength": 3, "maxLength": 5},
                "l": {"type": "array", "items": {"type": "integer", "minimum": 7, "maximum": 8}, "minItems": 2, "maxItems": 2},
            },
        }
        for seed in range(4):
            strict = {"type": "json_schema", "json_schema": {"name": "t", "strict": True, "schema": schema}}
            value = json.loads(self.answer(seed, strict).message.content)
            self.assertEqual(set(value), {"s", "l"})
            self.assertTrue(3 <= len(value["s"]) <= 5 and len(value["l"]) == 2, value)

    def test_guided_fields(self):
        def content(**fields):
            answer = self.client.chat.completions.create(
                model=MODEL, messages=ASK, temperature=1, seed=3, max_tokens=200, extra_body={**OFF, **fields}
            )
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            return answer.choices[0].message.content

        self.assertRegex(content(guided_regex="[a-c]{4}-[0-9]{2}"), r"^[a-c]{4}-[0-9]{2}$")
        self.assertIn(content(guided_choice=["north", "south"]), ("north", "south"))
        self.assertRegex(content(ebnf='root ::= "<" [x-z]{2,3} ">"'), "^<[x-z]{2,3}>$")
        self.assertRegex(content(guided_grammar='start: "<" /[x-z]{2,3}/ ">"'), "^<[x-z]{2,3}>$")
        self.assertIn(content(guided_json={"enum": [1, None]}), ("1", "null"))
        self.assertIn(content(structured_outputs={"choice": ["a", "b"]}), ("a", "b"))

    def test_form_of_json(self):
        schema = {
            "type": "object",
            "properties": {"a": {"enum": [1, 2]}, "b": {"type": "array", "items": {"enum": [3]}, "minItems": 2, "maxItems": 2}},
            "required": ["a", "b"],
        }
        closed = {"disable_any_whitespace": True, "disable_additional_properties": True}
        forms = (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": schema}}, "structured_outputs": closed},
            {"structured_outputs": {"json": schema, **closed}},
        )
        for form in forms:
            for seed in range(3):
                status, answer = post(
                    "/v1/chat/completions", {"model": MODEL, "messages": ASK, "seed": seed, "max_tokens": 200, **OFF, **form}
                )
                self.assertEqual(status, 200, answer)
                self.assertRegex(answer["choices"][0]["message"]["content"], r'^\{"a":[12],"b":\[3,3\]\}$')
        limits = {"default_max_length": 5, "default_max_items": 2}
        for seed in range(3):
            body = {"model": MODEL, "messages": ASK, "seed": seed, "max_tokens": 200, **OFF, "structured_outputs": limits}
            body["guided_json"] = {"type": "array", "items": {"type": "string"}, "minItems": 1}
            status, answer = post("/v1/chat/completions", body)
            self.assertEqual((status, answer["choices"][0]["finish_reason"]), (200, "stop"), answer)
            value = json.loads(answer["choices"][0]["message"]["content"])
            self.assertTrue(1 <= len(value) <= 2 and max(map(len, value)) <= 5, value)
        status, answer = post("/v1/chat/completions", {"model": MODEL, "messages": ASK, "structured_outputs": {"whitespace_pattern": " "}})
        self.assertEqual((status, answer["error"]["message"][:40]), (400, "/structured_outputs/whitespace_pattern: "))

    def test_stop_sequences_and_cancellation(self):
        """A stop sequence cuts a constrained answer as any other; a client that leaves ends it."""
        schema = {"type": "array", "items": {"enum": ["one", "two"]}, "minItems": 2000}
        body = {"model": MODEL, "messages": ASK, "guided_json": schema, **OFF, "seed": 1}
        status, answer = post("/v1/chat/completions", {**body, "stop": ["two"], "max_tokens": 1000})
        self.assertEqual((status, answer["choices"][0]["finish_reason"]), (200, "stop"))
        self.assertTrue(re.fullmatch(r'\[\s*("one",\s*)*"', answer["choices"][0]["message"]["content"]), answer)
        before = metric("deepinfer_requests_running")
        raw = Raw()
        response = raw.start("POST", "/v1/chat/completions", {**body, "stream": True, "max_tokens": 8000, "n": 2})
        response.read(100)
        raw.close()
        self.assertTrue(eventually(lambda: metric("deepinfer_requests_running") <= before))

    def test_logprobs_are_those_of_the_model(self):
        """The mask decides which tokens come; what is reported of them is what the model thinks."""
        answer = self.client.chat.completions.create(
            model=MODEL,
            messages=ASK,
            temperature=0,
            max_tokens=20,
            logprobs=True,
            top_logprobs=2,
            extra_body={**OFF, "guided_choice": ["zebra crossing"]},
        )
        entries = answer.choices[0].logprobs.content
        self.assertEqual("".join(entry.token for entry in entries), "zebra crossing")
        self.assertLess(sum(entry.logprob for entry in entries), -5)
        self.assertNotEqual(entries[0].top_logprobs[0].token, entries[0].token)

    def test_the_same_alone_and_beside_others(self):
        body = {
            "model": MODEL,
            "messages": ASK,
            "seed": 11,
            "max_tokens": 400,
            "structured_outputs": {"json": Part.model_json_schema()},
            **OFF,
        }
        alone = post("/v1/chat/completions", body)[1]["choices"]
        answers = [None] * 6

        def one(i):
            answers[i] = post("/v1/chat/completions", {**body, "seed": 11 if i % 2 else 100 + i})[1]["choices"]

        threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i in (1, 3, 5):
            self.assertEqual(answers[i], alone)


class AnthropicTest(unittest.TestCase):
    def setUp(self):
        self.client = anthropic_client()

    def create(self, **more):
        extra = {"temperature": 1, "seed": 1, **more.pop("extra_body", {})}
        return self.client.messages.create(
            **{"model": MODEL, "messages": ASK, "max_tokens": 1500, "thinking": {"type": "disabled"}, "extra_body": extra, **more}
        )

    def test_output_format_of_a_class(self):
        message = self.client.messages.parse(
            model=MODEL,
            messages=ASK,
            output_format=Sign,
            max_tokens=1500,
            thinking={"type": "disabled"},
            extra_body={"temperature": 1, "seed": 1},
        )
        self.assertIsInstance(message.parsed_output, Sign)

    def test_strict_tools(self):
        tool = {"name": "make", "strict": True, "input_schema": Part.model_json_schema()}
        for choice in ({"type": "any"}, {"type": "tool", "name": "make"}):
            for thinking in ({"type": "disabled"}, {"type": "enabled", "budget_tokens": 1024}):
                message = self.create(
                    tools=[tool],
                    tool_choice={**choice, "disable_parallel_tool_use": True},
                    thinking=thinking,
                    extra_body={"structured_outputs": {"disable_additional_properties": True}},
                    max_tokens=2500,
                )
                self.assertEqual(message.stop_reason, "tool_use")
                Part.model_validate(message.content[-1].input)

    def test_streamed_as_whole(self):
        tool = {"name": "make", "strict": True, "input_schema": Part.model_json_schema()}
        body = {
            "model": MODEL,
            "messages": ASK,
            "tools": [tool],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "max_tokens": 900,
            "thinking": {"type": "disabled"},
            "seed": 4,
        }
        status, whole = post("/v1/messages", body)
        self.assertEqual(status, 200, whole)
        streamed = "".join(
            data["delta"].get("partial_json", "") for _, data in events("/v1/messages", body) if data["type"] == "content_block_delta"
        )
        self.assertEqual(json.loads(streamed), whole["content"][-1]["input"])


if __name__ == "__main__":
    unittest.main()
