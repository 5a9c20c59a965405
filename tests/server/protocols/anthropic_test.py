# SPDX-License-Identifier: Apache-2.0
"""The official Anthropic client: messages."""
import unittest

import anthropic

from support import MODEL, WEATHER, anthropic_client, events

SUM = [{"role": "user", "content": "What is 3 + 4?"}]
PARIS = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOL = {"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}
ON = {"type": "enabled", "budget_tokens": 1024}
OFF = {"type": "disabled"}


class MessagesTest(unittest.TestCase):
    def setUp(self):
        self.client = anthropic_client()

    def arguments(self, messages=SUM, **more):
        more.setdefault("max_tokens", 100)
        more.setdefault("thinking", OFF)
        return {"model": MODEL, "messages": messages, "extra_body": {"temperature": 0}, **more}

    def create(self, messages=SUM, **more):
        return self.client.messages.create(**self.arguments(messages, **more))

    def test_answer(self):
        message = self.create([{"role": "user", "content": "What is the capital of France?"}])
        self.assertEqual(message.content[0].text, "The capital of France is Paris.")
        self.assertEqual((message.stop_reason, message.stop_sequence), ("end_turn", None))
        self.assertGreater(message.usage.input_tokens, 0)

    def test_thinking_whole_and_streamed(self):
        whole = self.create(thinking=ON)
        self.assertEqual([block.type for block in whole.content], ["thinking", "text"])
        self.assertEqual(whole.content[1].text, "3 + 4 = 7")
        thoughts, text, kinds = "", "", []
        with self.client.messages.stream(**self.arguments(thinking=ON)) as stream:
            for event in stream:
                kinds.append(event.type)
                if event.type == "thinking":
                    thoughts += event.thinking
                elif event.type == "text":
                    text += event.text
            final = stream.get_final_message()
        self.assertEqual((thoughts, text), (whole.content[0].thinking, whole.content[1].text))
        self.assertEqual(kinds[0], "message_start")
        self.assertEqual(kinds[-1], "message_stop")
        self.assertEqual([block.type for block in final.content], ["thinking", "text"])
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_tool_use_whole_streamed_and_result(self):
        whole = self.create(PARIS, tools=[TOOL])
        self.assertEqual(whole.stop_reason, "tool_use")
        use = [block for block in whole.content if block.type == "tool_use"][0]
        self.assertEqual((use.name, use.input), ("get_weather", {"city": "Paris"}))
        with self.client.messages.stream(**self.arguments(PARIS, tools=[TOOL], thinking=ON)) as stream:
            final = stream.get_final_message()
        self.assertEqual(final.stop_reason, "tool_use")
        self.assertEqual(final.content[-1].input, {"city": "Paris"})
        messages = PARIS + [{"role": "assistant", "content": whole.content},
                            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}]}]
        self.assertTrue(self.create(messages, tools=[TOOL]).content)

    def test_tool_choice(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
            message = self.create([{"role": "user", "content": "Tell me a story."}], tools=[TOOL], tool_choice=choice, max_tokens=200)
            self.assertEqual((message.stop_reason, message.content[-1].name), ("tool_use", "get_weather"))

    def test_D02_stop_sequences(self):
        story = [{"role": "user", "content": "Tell me a story."}]
        stopped = self.create(story, stop_sequences=["END", " little"])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", " little"))
        with self.client.messages.stream(**self.arguments(story, stop_sequences=["END", " little"])) as stream:
            final = stream.get_final_message()
        self.assertEqual((final.stop_reason, final.stop_sequence), ("stop_sequence", " little"))
        self.assertEqual(final.content[0].text, stopped.content[0].text)
        self.assertEqual(final.usage.output_tokens, stopped.usage.output_tokens)
        cut = self.create(story, max_tokens=3)
        self.assertEqual((cut.stop_reason, cut.stop_sequence), ("max_tokens", None))

    def test_D07_usage(self):
        messages = [{"role": "user", "content": "word " * 350 + "Tell me a story."}]
        rendered = self.client.messages.count_tokens(model=MODEL, messages=messages, thinking=OFF).input_tokens
        for _ in range(2):
            whole = self.create(messages, max_tokens=4).usage
            self.assertEqual(whole.input_tokens + whole.cache_read_input_tokens + whole.cache_creation_input_tokens, rendered)
            stream = events("/v1/messages", {"model": MODEL, "messages": messages, "max_tokens": 4, "thinking": OFF, "temperature": 0})
            start = stream[0][1]["message"]["usage"]
            end = [data for name, data in stream if name == "message_delta"][-1]["usage"]
            self.assertEqual(start["input_tokens"] + start["cache_read_input_tokens"], rendered)
            self.assertEqual(end["input_tokens"] + end["cache_read_input_tokens"], rendered)
            self.assertEqual(end["output_tokens"], whole.output_tokens)
        self.assertGreater(whole.cache_read_input_tokens, 0)

    def test_count_tokens(self):
        count = self.client.messages.count_tokens(model=MODEL, messages=SUM, tools=[TOOL], system="Be brief.").input_tokens
        self.assertGreater(count, self.client.messages.count_tokens(model=MODEL, messages=SUM).input_tokens + 50)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [MODEL])

    def test_D17_errors_by_type(self):
        def body(expected, **more):
            with self.assertRaises(expected) as caught:
                self.client.messages.create(**{**self.arguments(), **more})
            self.assertEqual(caught.exception.body["type"], "error")
            return caught.exception.body["error"]

        self.assertEqual(body(anthropic.NotFoundError, model="nobody")["type"], "not_found_error")
        for more in ({"stop_sequences": [""]}, {"max_tokens": 0}, {"messages": []}, {"extra_body": {"temperature": 3}}):
            self.assertEqual(body(anthropic.BadRequestError, **more)["type"], "invalid_request_error", more)
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            anthropic_client("sk-wrong").messages.create(**self.arguments())
        self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")
        image = [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                                                          "data": "iVBORw0KGgo="}}]}]
        self.assertIn("image", body(anthropic.BadRequestError, messages=image)["message"])
