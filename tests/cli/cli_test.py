#!/usr/bin/env python3
"""Property: the program does what its help says: text alone on stdout, errors on stderr with exit code 1, wrong usage 2.

usage: cli_test.py PROGRAM SOURCE_DIR BUILD_DIR
"""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, SOURCE, BUILD = (pathlib.Path(p) for p in sys.argv[1:4])
MODEL = SOURCE / "models/deepseek-v41-tiny"
STORY = ", there was a little girl named Lily."


def run(*args, stdin=b"", program=PROGRAM, **environment):
    env = {**os.environ, **environment}
    return subprocess.run([program, *map(str, args)], input=stdin, capture_output=True, env=env, timeout=120)


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, data[8 + length :]


class Generate(unittest.TestCase):
    def test_text_alone_on_stdout(self):
        done = run("generate", "Once upon a time", "--max-tokens", 12, "--stats")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.decode().startswith(STORY), done.stdout)
        self.assertIn(b"tokens/s", done.stderr)

    def test_prompt_from_stdin_and_file(self):
        expected = run("generate", "Once upon a time", "-n", 8).stdout
        self.assertEqual(run("generate", "-n", 8, stdin=b"Once upon a time").stdout, expected)
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"Once upon a time")
            file.flush()
            self.assertEqual(run("generate", "-n", 8, "--prompt-file", file.name).stdout, expected)

    def test_json_logprobs_and_ids(self):
        done = run("generate", "Once upon a time", "-n", 5, "--json", "--logprobs", 3)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(len(answer["ids"]), 5)
        self.assertEqual(len(answer["logprobs"]), 5)
        self.assertEqual(answer["logprobs"][0]["id"], answer["logprobs"][0]["top"][0]["id"])  # greedy
        self.assertEqual(len(answer["logprobs"][0]["top"]), 3)
        ids = run("generate", "Once upon a time", "-n", 5, "--ids").stdout.decode()
        self.assertEqual([int(i) for i in ids.split(",")], answer["ids"])
        same = run("generate", "0,1169,731,261,566", "-n", 5, "--ids").stdout.decode()
        self.assertEqual(same, ids)
        self.assertEqual(run("generate", "x", "--logprobs", 2).returncode, 1)

    def test_seed_decides(self):
        draw = lambda seed: run("generate", "Once", "-n", 12, "--temperature", 1, "--seed", seed).stdout
        self.assertEqual(draw(7), draw(7))
        self.assertNotEqual(draw(7), draw(8))

    def test_threads_and_chunks_change_nothing(self):
        prompt = " ".join(["The boat was on the lake and the wind was strong."] * 20)
        results = {
            run("generate", prompt, "-n", 8, "--json", "--logprobs", 2, "--seed", 1, *extra).stdout
            for extra in ([], ["--threads", 1], ["--threads", 2, "--chunk", 16], ["--threads", 3, "--chunk", 100])
        }
        self.assertEqual(len(results), 1)

    def test_stop_string(self):
        done = run("generate", "Once upon a time", "-n", 30, "--json", "--stop", " named")
        answer = json.loads(done.stdout)
        self.assertEqual(answer["text"], ", there was a little girl")
        self.assertEqual(answer["finish_reason"], "stop")

    def test_interrupt_ends_with_130(self):
        process = subprocess.Popen([PROGRAM, "generate", "Once", "-n", "100000", "--ignore-eos"], stdout=subprocess.PIPE)
        process.stdout.read(10)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)

    def test_interrupt_within_a_long_prompt(self):
        process = subprocess.Popen([PROGRAM, "generate", "word " * 12000, "-n", "1", "--chunk", "64"], stdout=subprocess.PIPE)
        time.sleep(1)  # the model is loaded, the prompt takes seconds
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(text, b"\n")
        self.assertLess(time.monotonic() - begin, 5)


SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                           "age": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["name", "age"], "additionalProperties": False}


class Constraints(unittest.TestCase):
    def text(self, *flags, command="generate", **more):
        where = ["Once"] if command == "generate" else []
        done = run(command, *where, "-n", 400, "--temperature", 1, "--seed", 5, *flags, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode().removesuffix("\n")

    def check(self, text):
        value = json.loads(text)
        self.assertEqual(list(value), ["name", "age"])
        self.assertIn(value["age"], range(1, 10))

    def test_generate(self):
        self.check(self.text("--json-schema", json.dumps(SCHEMA)))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "schema"
            path.write_text(json.dumps(SCHEMA))
            self.check(self.text("--json-schema", path))
            path.write_text('root ::= "<" [ab]{3} ">"')
            self.assertRegex(self.text("--grammar", path), "^<[ab]{3}>$")
        self.assertRegex(self.text("--regex", "[0-9]{3}-[x-z]{2,4}7"), "^[0-9]{3}-[x-z]{2,4}7$")
        self.assertIn(self.text("--choice", "north", "--choice", "the south"), ("north", "the south"))
        self.assertTrue(self.text("--json-object").startswith("{"))

    def test_chat(self):
        for think in ([], ["--think"]):
            answers = self.text("--json-schema", json.dumps(SCHEMA), *think, command="chat", stdin=b"Make up a child.\nAnd one more.\n")
            decoder = json.JSONDecoder()
            start = answers.index("{")  # behind the thinking
            self.check(json.dumps(decoder.raw_decode(answers[start:])[0]))
        self.assertIn(self.text("--choice", "yes", "--choice", "no", command="chat", stdin=b"Is it?\n"), ("yes", "no"))


class Errors(unittest.TestCase):
    def test_constraints(self):
        odd = '{"type":"object","properties":{"a":{"type":"string","pattern":"(?=x)"}}}'
        for command in ("generate", "chat"):
            where = ["x"] if command == "generate" else []
            self.refused(run(command, *where, "--json-schema", odd), "--json-schema: #/properties/a", 'keyword "pattern"')
            self.refused(run(command, *where, "--json-schema", "{"), "--json-schema: ")
            self.refused(run(command, *where, "--json-schema", "/nowhere"), "--json-schema: /nowhere")
            self.refused(run(command, *where, "--json-schema", ""), "--json-schema: ", "empty")
            self.refused(run(command, *where, "--json-schema", "[]"), "--json-schema: ", "must be an object or a boolean")
            self.refused(run(command, *where, "--choice", ""), "--choice: ", "empty")
            self.refused(run(command, *where, "--regex", "("), "--regex: ")
            self.refused(run(command, *where, "--grammar", "/nowhere"), "--grammar: /nowhere")
            self.refused(run(command, *where, "--regex", "a", "--json-object"), "--regex", "--json-object")
            impossible = '{"type":"object","required":["a"],"additionalProperties":false}'
            self.refused(run(command, *where, "--json-schema", impossible), "--json-schema: ", "unsatisfiable")

    def refused(self, done, *parts, code=1):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, b"")
        for part in parts:
            self.assertIn(part, done.stderr.decode())

    def test_usage(self):
        self.assertEqual(run("generate", "--no-such-flag").returncode, 2)
        self.assertEqual(run().returncode, 2)
        self.assertEqual(run("nonsense").returncode, 2)
        self.assertEqual(run("--help").returncode, 0)
        self.assertEqual(run("generate", "--help").returncode, 0)
        self.assertIn(b"deepinfer ", run("--version").stdout)

    def test_bad_prompts(self):
        self.refused(run("generate", stdin=b"ab\xff"), "prompt: not valid UTF-8 at byte 2")
        self.refused(run("generate", "long " * 100, "--ctx", 64), "prompt:", "context of 64")
        self.refused(run("generate", "99999999", "--ids"), "99999999", "8191")
        self.refused(run("score", "--ids", "5,8192"), "8192", "8191")
        self.refused(run("score", "--ids", "5,x"), "expected numbers")
        self.refused(run("score"), "--ids")

    def test_bad_sampling(self):
        self.refused(run("generate", "a", "--top-p", 2), "top_p")
        self.refused(run("generate", "a", "--temperature", "-1"), "temperature")
        self.refused(run("generate", "a", "--temperature", "nan"), "temperature")

    def test_bad_places(self):
        self.refused(run("generate", "a", "--model", "/nowhere"), "/nowhere")
        self.refused(run("generate", "a", "--model", "org/name", "--offline"), "org/name")
        self.refused(run("generate", "a", DEEPINFER_ACCELERATOR="abacus"), "abacus")
        self.refused(run("score", "--ids", "5,6", "--logits", "/nowhere/out"), "/nowhere/out")
        self.refused(run("score", "--ids-file", "/nowhere/ids"), "/nowhere/ids")

    def test_numbers_out_of_range_are_wrong_usage(self):
        for flag, value in (("--seed", "-1"), ("--seed", "18446744073709551616"), ("--ctx", "-1"), ("--chunk", "0"),
                            ("--ctx", "99999999999999999999"), ("--max-tokens", "x"), ("--threads", "1025")):
            done = run("generate", "a", flag, value)
            self.assertEqual(done.returncode, 2, (flag, value, done.stderr))
            self.assertIn(flag.encode(), done.stderr)
            self.assertLess(len(done.stderr), 200)  # not a limit of 308 digits

    def test_a_variant_of_the_reference_backend(self):
        self.refused(run("generate", "a", "--backend", "reference", "--variant", "avx2"), "avx2", "reference")

    def test_standard_streams_that_are_closed(self):
        # The numbers 0 to 2 must not become files of the program's own: the model is not the prompt.
        closed = lambda command: subprocess.run(["bash", "-c", f'"{PROGRAM}" {command}'], capture_output=True, timeout=60)
        done = closed("generate -n 3 <&-")
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"standard input", done.stderr)
        done = closed("generate a -n 3 >&-")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"standard output", done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.safetensors"
            self.assertEqual(closed(f"score --ids 5,6 --logits {out} <&- >&- 2>&-").returncode, 0)
            self.assertEqual(read_safetensors(out)[0]["logits"]["shape"], [2, 8192])

    def test_full_output(self):
        done = subprocess.run(f'"{PROGRAM}" generate a -n 3 > /dev/full', shell=True, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"No space left", done.stderr)

    def test_logits_never_replace_what_is_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            self.refused(run("score", "--ids", "5,6", "--logits", pipe), "pipe", "not a regular file")
            self.assertTrue(pipe.is_fifo())
            self.assertEqual([p.name for p in pathlib.Path(folder).iterdir()], ["pipe"])

    def test_a_file_that_shrinks_while_it_is_used(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model"
            shutil.copytree(MODEL, model)
            process = subprocess.Popen(
                [PROGRAM, "generate", "Once", "-n", "100000", "--ignore-eos", "--model", model],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.read(10)
            os.truncate(model / "model.safetensors", 1_000_000)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, errors)
            self.assertIn(b"model.safetensors", errors)


class Score(unittest.TestCase):
    def test_logits_and_logprobs_agree(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.safetensors"
            done = run("score", "--ids", "0,1169,731,261,566", "--logits", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            header, data = read_safetensors(out)
            self.assertEqual(header["logits"]["shape"], [5, 8192])
            self.assertEqual(header["logits"]["dtype"], "F32")
            whole = data
            for extra in (["--from", 2], ["--chunk", 1], ["--threads", 1]):
                run("score", "--ids", "0,1169,731,261,566", "--logits", out, *extra)
                self.assertEqual(read_safetensors(out)[1], whole, extra)
        scores = json.loads(run("score", "--ids", "0,1169,731,261,566", "--top", 2).stdout)
        self.assertEqual(scores["logprobs"][0], None)
        self.assertEqual(len(scores["logprobs"]), 5)
        self.assertEqual(len(scores["next_top_ids"]), 2)

    def test_ids_file(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(b"[0, 1169,\n 731]")
            file.flush()
            self.assertEqual(run("score", "--ids-file", file.name).stdout, run("score", "--ids", "0,1169,731").stdout)


class Chat(unittest.TestCase):
    def test_turns_commands_and_several_lines(self):
        done = run("chat", "-n", 24, "--stats", stdin=b'What is the capital of France?\n"""And\nof Italy?"""\n/nonsense\n/new\n/quit\n')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith(b"The capital of France is Paris.\n"), done.stdout)
        self.assertIn(b"no such command", done.stderr)
        self.assertEqual(done.stderr.count(b"prompt tokens"), 2, done.stderr)

    def test_a_turn_finds_the_one_before_in_the_cache(self):
        text = " ".join(["The boat was on the lake and the wind was strong."] * 20).encode()
        done = run("chat", "-n", 4, "--stats", stdin=text + b"\nAnd then?\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        # "(PROMPT prompt tokens, CACHED of them cached, ...": whole blocks of 128 tokens.
        lines = [line.split() for line in done.stderr.decode().splitlines() if " of them cached" in line]
        counts = [(int(words[0][1:]), int(words[3])) for words in lines]
        self.assertEqual(len(counts), 2, done.stderr)
        self.assertEqual(counts[0][1], 0)
        self.assertGreaterEqual(counts[1][1], 128)
        self.assertLess(counts[1][0] - counts[1][1], 2 * 128)

    def test_text_that_is_no_utf8(self):
        self.assertEqual(run("chat", "--system", b"\xff".decode(errors="surrogateescape")).returncode, 1)
        done = run("chat", "-n", 24, stdin=b"/system \xff\n\xfe\nWhat is the capital of France?\n")
        self.assertEqual(done.stderr.count(b"not valid UTF-8"), 2, done.stderr)
        self.assertTrue(done.stdout.startswith(b"The capital of France is Paris.\n"), done.stdout)

    def test_interrupt_within_a_long_prompt(self):
        process = subprocess.Popen([PROGRAM, "chat", "-n", "20", "--chunk", "64"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(b"word " * 12000 + b"\n")
        process.stdin.flush()
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        text, errors = process.communicate(b"What is the capital of France?\n", timeout=60)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"(stopped)", errors)
        self.assertNotIn(b"word", text)

    def test_thinking_is_told_apart(self):
        done = run("chat", "--think", "-n", 40, stdin=b"What is 17 + 25?\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(b"</think>", done.stdout)

    def test_interrupt_stops_the_answer_and_not_the_program(self):
        process = subprocess.Popen([PROGRAM, "chat", "-n", "3000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        process.stdin.write(b"Tell me a story about a cat.\n")
        process.stdin.flush()
        process.stdout.read(10)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(b"What is the capital of France?\n/quit\n", timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"Paris", rest)


class Recipe(unittest.TestCase):
    REQUEST = b'{"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"Hi <\xef\xbd\x9cUser\xef\xbd\x9c>"}]}'

    def test_render(self):
        ids = json.loads(run("render", "--ids", stdin=self.REQUEST).stdout)
        tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
        (user,) = [t["id"] for t in tokenizer["added_tokens"] if t["content"] == "<｜User｜>"]
        self.assertEqual(ids.count(user), 1)  # what the user spells is text
        self.assertIn("<｜User｜>Hi", run("render", stdin=self.REQUEST).stdout.decode())
        self.assertEqual(run("render", stdin=b'{"messages":5}').returncode, 1)
        self.assertIn(b"messages", run("render", stdin=b'{"model":"x","messages":5}').stderr)

    def test_parse(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.REQUEST)
            file.flush()
            answer = json.loads(run("parse", "--request", file.name, stdin=b"hm</think>Hello").stdout)
        message = answer["choices"][0]["message"]
        self.assertEqual((message["reasoning_content"], message["content"]), ("hm", "Hello"))


class Others(unittest.TestCase):
    def test_tokenize_and_back(self):
        text = "Hello, naïve café 😀 123"
        ids = run("tokenize", text).stdout
        self.assertEqual(run("tokenize", stdin=text.encode()).stdout, ids)
        self.assertEqual(run("detokenize", stdin=ids).stdout.decode(), text + "\n")
        self.assertEqual(run("detokenize", "999999").returncode, 1)
        plain = json.loads(run("tokenize", "<｜User｜>").stdout)
        special = json.loads(run("tokenize", "--special", "<｜User｜>").stdout)
        self.assertGreater(len(plain), 1)
        self.assertEqual(len(special), 1)

    def test_info(self):
        info = json.loads(run("info", "--json").stdout)
        self.assertEqual(info["geometry"]["layers"], 10)
        self.assertEqual(info["global_cache_bytes_per_token"], 212)
        self.assertEqual(len(info["model_identity"]), 64)
        self.assertTrue(info["numeric_identity"].startswith("cpu "))
        self.assertIn(b"numeric_identity", run("info").stdout)

    def test_installed_program_finds_the_model(self):
        with tempfile.TemporaryDirectory() as prefix:
            subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, capture_output=True)
            program = pathlib.Path(prefix) / "bin/deepinfer"
            done = run("generate", "Once upon a time", "-n", 10, program=program)
            self.assertTrue(done.stdout.decode().startswith(STORY), done.stderr)
            info = json.loads(run("info", "--json", program=program).stdout)
            self.assertTrue(info["directory"].startswith(prefix), info["directory"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
