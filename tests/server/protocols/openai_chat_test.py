# SPDX-License-Identifier: Apache-2.0
"""The official OpenAI client: chat completions and completions."""
import json
import unittest

import openai

from support import CAPPED, MODEL, WEATHER, openai_client

STORY = [{"role": "user", "content": "Tell me a story."}]
PARIS = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOLS = [{"type": "function", "function": WEATHER}]
OFF = {"thinking": {"type": "disabled"}}


class ChatTest(unittest.TestCase):
    def setUp(self):
        self.client = openai_client()

    def create(self, messages=STORY, **more):
        more.setdefault("extra_body", OFF)
        more.setdefault("max_tokens", 24)
        more.setdefault("temperature", 0)
        return self.client.chat.completions.create(model=MODEL, messages=messages, **more)

    def test_answer(self):
        answer = self.create()
        self.assertEqual(answer.object, "chat.completion")
        self.assertTrue(answer.choices[0].message.content.startswith("Once upon a time"))
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 24)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 24)
        self.assertRegex(answer.system_fingerprint, r"^[0-9a-f]{16} (cpu|cuda|reference) ")
        self.assertEqual(answer.model, MODEL)

    def test_stream_is_the_whole_answer(self):
        for more in ({}, {"n": 3, "temperature": 1, "seed": 3}, {"extra_body": {}}, {"logprobs": True, "top_logprobs": 2}):
            whole = self.create(**more)
            texts, thoughts, usage, entries = {}, {}, None, {}
            for chunk in self.create(stream=True, stream_options={"include_usage": True}, **more):
                if chunk.usage:
                    usage = chunk.usage
                for choice in chunk.choices:
                    index = choice.index
                    texts[index] = texts.get(index, "") + (choice.delta.content or "")
                    thoughts[index] = thoughts.get(index, "") + (getattr(choice.delta, "reasoning_content", None) or "")
                    if choice.logprobs and choice.logprobs.content:
                        entries.setdefault(index, []).extend(choice.logprobs.content)
            for choice in whole.choices:
                self.assertEqual(texts[choice.index], choice.message.content)
                self.assertEqual(thoughts[choice.index], getattr(choice.message, "reasoning_content", ""))
                if "logprobs" in more:
                    self.assertEqual(entries[choice.index], choice.logprobs.content)
            self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
            self.assertEqual(usage.prompt_tokens, whole.usage.prompt_tokens)

    def test_logprobs(self):
        answer = self.create(logprobs=True, top_logprobs=3)
        entries = answer.choices[0].logprobs.content
        self.assertEqual(len(entries), 24)
        self.assertEqual(b"".join(bytes(e.bytes) for e in entries).decode(), answer.choices[0].message.content)
        for entry in entries:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.top_logprobs[0].token, entry.token)  # greedy

    def test_choices_differ_and_repeat(self):
        one = self.create(n=4, temperature=1, seed=7)
        two = self.create(n=4, temperature=1, seed=7)
        texts = [c.message.content for c in one.choices]
        self.assertEqual(texts, [c.message.content for c in two.choices])
        self.assertEqual(len(set(texts)), 4)
        self.assertNotEqual(texts[0], self.create(temperature=1, seed=8).choices[0].message.content)
        self.assertEqual(texts[0], self.create(temperature=1, seed=7).choices[0].message.content)

    def test_stop(self):
        answer = self.create(stop=[" little", "never"])
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertTrue(answer.choices[0].message.content.endswith("there was a"))
        streamed = "".join(c.choices[0].delta.content or "" for c in self.create(stop=" little", stream=True))
        self.assertEqual(streamed, answer.choices[0].message.content)

    def test_thinking_comes_apart(self):
        answer = self.create([{"role": "user", "content": "What is 3 + 4?"}], max_tokens=60, extra_body={})
        self.assertEqual(answer.choices[0].message.content, "3 + 4 = 7")
        self.assertIn("7", answer.choices[0].message.reasoning_content)
        self.assertGreater(answer.usage.completion_tokens_details.reasoning_tokens, 3)

    def test_tool_call_and_result(self):
        answer = self.create(PARIS, tools=TOOLS, max_tokens=80)
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
        call = answer.choices[0].message.tool_calls[0]
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Paris"}))
        messages = PARIS + [answer.choices[0].message,
                            {"role": "tool", "tool_call_id": call.id, "content": '{"weather": "sunny"}'}]
        final = self.create(messages, tools=TOOLS, max_tokens=40)
        self.assertTrue(final.choices[0].message.content)

    def test_tool_call_streamed(self):
        name, arguments, finish = "", "", None
        for chunk in self.create(PARIS, tools=TOOLS, max_tokens=80, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
            finish = chunk.choices[0].finish_reason or finish
        self.assertEqual((name, json.loads(arguments), finish), ("get_weather", {"city": "Paris"}, "tool_calls"))

    def test_tool_choice_required(self):
        for extra in (OFF, {}):
            answer = self.create(STORY, tools=TOOLS, tool_choice="required", max_tokens=200, extra_body=extra)
            self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
            call = answer.choices[0].message.tool_calls[0]
            self.assertEqual(call.function.name, "get_weather")
            self.assertIsInstance(json.loads(call.function.arguments)["city"], str)

    def test_json_mode(self):
        messages = [{"role": "user", "content": "Give me a json object with a name and an age."}]
        answer = self.create(messages, response_format={"type": "json_object"}, max_tokens=200)
        if answer.choices[0].finish_reason == "stop":
            json.loads(answer.choices[0].message.content)

    def test_json_schema(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99,
                  "minimum": 0}}, "required": ["name", "age"], "additionalProperties": False}
        answer = self.create(response_format={"type": "json_schema", "json_schema": {"name": "t", "strict": True, "schema": schema}},
                             max_tokens=200)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        value = json.loads(answer.choices[0].message.content)
        self.assertEqual(set(value), {"name", "age"})
        self.assertIsInstance(value["age"], int)

    def test_cached_tokens(self):
        messages = [{"role": "user", "content": "word " * 300 + "Tell me a story about caches."}]
        self.create(messages, max_tokens=1)
        answer = self.create(messages, max_tokens=1)
        self.assertGreaterEqual(answer.usage.prompt_tokens_details.cached_tokens, 128)
        self.assertLess(answer.usage.prompt_tokens_details.cached_tokens, answer.usage.prompt_tokens)

    def test_errors_by_type(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="nobody", messages=STORY)
        self.assertIn(MODEL, caught.exception.message)
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(temperature=9)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError):
            self.create(max_tokens=50, messages=[{"role": "user", "content": "x " * 30000}])
        with self.assertRaises(openai.AuthenticationError):
            openai_client("sk-wrong").models.list()
        with self.assertRaises(openai.BadRequestError):
            openai_client(CAPPED).chat.completions.create(model=MODEL, messages=STORY, max_tokens=6)
        image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}]
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(image)
        self.assertIn("image", caught.exception.message)

    def test_limit_of_a_key(self):
        answer = openai_client(CAPPED).chat.completions.create(model=MODEL, messages=STORY)
        self.assertEqual(answer.usage.completion_tokens, 5)

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nobody")


class CompletionsTest(unittest.TestCase):
    def setUp(self):
        self.client = openai_client()

    def create(self, prompt="Once upon a time", **more):
        more.setdefault("max_tokens", 12)
        more.setdefault("temperature", 0)
        return self.client.completions.create(model=MODEL, prompt=prompt, **more)

    def test_several_prompts_and_choices(self):
        whole = self.create(["Once upon a time", "One day"], n=2, temperature=1, seed=5)
        self.assertEqual([c.index for c in whole.choices], [0, 1, 2, 3])
        alone = self.create("One day", n=2, temperature=1, seed=5)
        self.assertEqual([c.text for c in whole.choices[2:]], [c.text for c in alone.choices])
        texts = {}
        for chunk in self.create(["Once upon a time", "One day"], n=2, temperature=1, seed=5, stream=True):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
        self.assertEqual([texts[i] for i in range(4)], [c.text for c in whole.choices])

    def test_echo_and_token_ids(self):
        plain = self.create().choices[0].text
        self.assertEqual(self.create(echo=True).choices[0].text, "Once upon a time" + plain)
        self.assertEqual(self.create(echo=True, max_tokens=0).choices[0].text, "Once upon a time")
        with self.assertRaises(openai.BadRequestError):
            self.create(max_tokens=0)

    def test_C20_logprobs_of_the_prompt(self):
        whole = self.create(["Once upon a time", "a b c"], echo=True, logprobs=2, max_tokens=5)
        for choice in whole.choices:
            logprobs = choice.logprobs
            self.assertEqual("".join(logprobs.tokens), choice.text)
            self.assertEqual([choice.text.find(t, o) for t, o in zip(logprobs.tokens, logprobs.text_offset)], logprobs.text_offset)
            self.assertTrue(all(p <= 0 for p in logprobs.token_logprobs))
            self.assertTrue(all(len(top) == 2 for top in logprobs.top_logprobs))
        only = self.create(["Once upon a time", "a b c"], echo=True, logprobs=2, max_tokens=0)
        self.assertEqual(only.usage.completion_tokens, 0)
        for prompt, choice in zip(only.choices, whole.choices):
            count = len(prompt.logprobs.tokens)
            self.assertEqual("".join(prompt.logprobs.tokens), prompt.text)
            self.assertEqual(prompt.logprobs.token_logprobs, choice.logprobs.token_logprobs[:count])
            self.assertEqual(prompt.finish_reason, "length")
        # What the model says of a text is the same whether it wrote it or was given it.
        given = self.create(whole.choices[0].text, echo=True, logprobs=2, max_tokens=0)
        if given.choices[0].logprobs.tokens == whole.choices[0].logprobs.tokens:
            self.assertEqual(given.choices[0].logprobs, whole.choices[0].logprobs)
        texts, scores = ["", ""], [[], []]
        for chunk in self.create(["Once upon a time", "a b c"], echo=True, logprobs=2, max_tokens=5, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
                scores[choice.index] += choice.logprobs.token_logprobs if choice.logprobs else []
        self.assertEqual(texts, [c.text for c in whole.choices])
        self.assertEqual(scores, [c.logprobs.token_logprobs for c in whole.choices])

    def test_logprobs(self):
        answer = self.create(logprobs=2)
        logprobs = answer.choices[0].logprobs
        self.assertEqual("".join(logprobs.tokens), answer.choices[0].text)
        self.assertEqual(len(logprobs.token_logprobs), 12)
        self.assertTrue(all(len(top) == 2 for top in logprobs.top_logprobs))
        self.assertEqual(logprobs.text_offset[0], 0)
