# SPDX-License-Identifier: Apache-2.0
"""The official OpenAI client: responses, stored and streamed."""
import json
import time
import unittest

import openai

from support import BOB, MODEL, WEATHER, events, openai_client

OFF = {"effort": "none"}
TOOL = {"type": "function", **WEATHER}


class ResponsesTest(unittest.TestCase):
    def setUp(self):
        self.client = openai_client()

    def create(self, input="What is 3 + 4?", **more):
        more.setdefault("max_output_tokens", 60)
        more.setdefault("temperature", 0)
        return self.client.responses.create(model=MODEL, input=input, **more)

    def test_answer(self):
        response = self.create()
        self.assertEqual(response.status, "completed")
        self.assertEqual(response.output_text, "3 + 4 = 7")
        self.assertEqual([item.type for item in response.output], ["reasoning", "message"])
        self.assertGreater(response.usage.output_tokens_details.reasoning_tokens, 0)
        cut = self.create("Tell me a story.", reasoning=OFF, max_output_tokens=5)
        self.assertEqual(cut.status, "incomplete")
        self.assertEqual(cut.incomplete_details.reason, "max_output_tokens")

    def check_order(self, stream):
        """Events one by one against the grammar of a stream; returns their types."""
        types = []
        open_item = open_part = None
        for number, (name, event) in enumerate(stream):
            kind = event["type"]
            self.assertEqual(kind, name)
            self.assertEqual(event["sequence_number"], number)
            types.append(kind)
            if kind == "response.output_item.added":
                self.assertIsNone(open_item)
                open_item = event["item"]["id"]
            elif kind == "response.output_item.done":
                self.assertEqual((event["item"]["id"], open_part), (open_item, None))
                open_item = None
            elif kind == "response.content_part.added":
                self.assertEqual((event["item_id"], open_part), (open_item, None))
                open_part = open_item
            elif kind == "response.content_part.done":
                self.assertEqual(event["item_id"], open_part)
                open_part = None
            elif ".delta" in kind or kind.endswith("text.done"):
                self.assertEqual(event["item_id"], open_item)
        self.assertEqual(types[:2], ["response.created", "response.in_progress"])
        self.assertIsNone(open_item)
        return types

    def test_D09_event_order(self):
        body = {"model": MODEL, "max_output_tokens": 60, "temperature": 0}
        types = self.check_order(events("/v1/responses", {**body, "input": "What is 3 + 4?"}))
        self.assertEqual(types[-1], "response.completed")
        self.assertIn("response.reasoning_text.delta", types)
        types = self.check_order(events("/v1/responses", {**body, "input": "Tell me a story.", "reasoning": OFF, "max_output_tokens": 5}))
        self.assertEqual(types[-1], "response.incomplete")
        stream = events("/v1/responses", {**body, "input": "What is the weather in Paris?", "tools": [TOOL], "max_output_tokens": 90})
        types = self.check_order(stream)
        self.assertIn("response.function_call_arguments.done", types)
        self.assertEqual(stream[-1][1]["response"]["output"][-1]["type"], "function_call")

    def test_typed_stream_is_the_whole_answer(self):
        with self.client.responses.stream(model=MODEL, input="What is 3 + 4?", temperature=0, max_output_tokens=60) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
        whole = self.create()
        self.assertEqual(text, whole.output_text)
        self.assertEqual(final.output_text, whole.output_text)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_tool_call_and_result(self):
        response = self.create("What is the weather in Paris?", tools=[TOOL], max_output_tokens=90)
        call = [item for item in response.output if item.type == "function_call"][0]
        self.assertEqual((call.name, json.loads(call.arguments)), ("get_weather", {"city": "Paris"}))
        output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"weather": "sunny"}'}
        final = self.create([output], previous_response_id=response.id, tools=[TOOL])
        self.assertEqual(final.status, "completed")
        # The same conversation spelled out gives the same answer.
        items = [{"role": "user", "content": "What is the weather in Paris?"}, *[i.to_dict() for i in response.output], output]
        self.assertEqual(self.create(items, tools=[TOOL]).output_text, final.output_text)

    def test_tool_choice_required(self):
        response = self.create("Tell me a story.", tools=[TOOL], tool_choice="required", reasoning=OFF, max_output_tokens=200)
        self.assertEqual(response.output[-1].type, "function_call")

    def test_stored(self):
        response = self.create()
        again = self.client.responses.retrieve(response.id)
        self.assertEqual(again.to_dict(), response.to_dict())
        items = self.client.responses.input_items.list(response.id)
        self.assertEqual(len(items.data), 1)
        other = openai_client(BOB)
        for call in (other.responses.retrieve, other.responses.delete, other.responses.cancel):
            with self.assertRaises(openai.NotFoundError):
                call(response.id)
        with self.assertRaises(openai.BadRequestError):
            other.responses.create(model=MODEL, input="x", previous_response_id=response.id)
        self.client.responses.delete(response.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(response.id)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create("x", previous_response_id=response.id)
        self.assertEqual(caught.exception.code, "previous_response_not_found")

    def test_background_and_cancel(self):
        response = self.create(background=True)
        self.assertEqual(response.status, "in_progress")
        for _ in range(200):
            response = self.client.responses.retrieve(response.id)
            if response.status != "in_progress":
                break
            time.sleep(0.05)
        self.assertEqual((response.status, response.output_text), ("completed", "3 + 4 = 7"))
        body = {"min_tokens": 8000}
        running = self.create("Tell me a story.", background=True, max_output_tokens=9000, reasoning=OFF, extra_body=body)
        self.assertEqual(self.client.responses.cancel(running.id).status, "cancelled")
        self.assertEqual(self.client.responses.retrieve(running.id).status, "cancelled")

    def test_logprobs(self):
        response = self.create("What is 3 + 4?", include=["message.output_text.logprobs"], top_logprobs=2, reasoning=OFF)
        part = response.output[-1].content[0]
        self.assertEqual("".join(entry.token for entry in part.logprobs), part.text)
        self.assertTrue(all(len(entry.top_logprobs) == 2 for entry in part.logprobs))

    def test_errors_by_type(self):
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.create(model="nobody", input="x")
        with self.assertRaises(openai.BadRequestError):
            self.create([])
        with self.assertRaises(openai.BadRequestError):
            self.create(background=True, stream=True)
