#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random schemas and documents: the grammar library against the `jsonschema` package.

    differential.py GRAMMAR_CHECK_PROGRAM [--seconds N] [--seed S]

GRAMMAR_CHECK_PROGRAM is build/bin/grammar_check. Two comparisons take turns:
* documents: random documents are accepted exactly if the package calls them valid;
* language: the schema is confined to a small universe of values. All values of the universe are validated one by one;
  then every prefix of the valid ones must allow exactly the tokens that lead to one of them (masks, stops, dead ends).
The same seed gives the same schemas. Needs the package: Debian's python3-jsonschema or pip install jsonschema.
"""
import argparse
import importlib.metadata
import itertools
import json
import random
import subprocess
import sys
import time

try:
    import jsonschema
except ImportError:
    print("skipped: the Python package jsonschema is not installed")
    sys.exit(77)

# Older versions take no notice of additionalProperties there.
KNOWS_UNEVALUATED = tuple(map(int, importlib.metadata.version("jsonschema").split(".")[:2])) >= (4, 18)
KEYS = ["a", "b", "c"]
SCALARS = [None, True, False, 0, 1, 2, -1, 1.5, 10, "", "a", "b", "ab", "abc"]


def value(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.5:
        return rng.choice(SCALARS)
    if kind < 0.75:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {k: value(rng, depth - 1) for k in rng.sample(KEYS + ["d"], rng.randrange(4))}


def schema(rng, depth):
    if rng.random() < 0.08:
        return rng.random() < 0.7
    s = {}
    if rng.random() < 0.5:
        s["type"] = rng.choice(["null", "boolean", "integer", "number", "string", "array", "object", ["array", "object"],
                                ["string", "integer"]])
    sub = lambda: schema(rng, depth - 1)
    simple = {
        "enum": lambda: [value(rng, 1) for _ in range(rng.randint(1, 3))], "const": lambda: value(rng, 1),
        "minimum": lambda: rng.choice([0, 1, -1.5]), "exclusiveMaximum": lambda: rng.choice([2, 10, 1.5]),
        "multipleOf": lambda: rng.choice([1, 2, 0.5]), "minLength": lambda: rng.randrange(3), "maxLength": lambda: rng.randrange(4),
        "pattern": lambda: rng.choice(["^a", "b$", "^(a|b)*$", "c"]), "minItems": lambda: rng.randrange(3),
        "maxItems": lambda: rng.randrange(4), "uniqueItems": lambda: True, "required": lambda: rng.sample(KEYS, rng.randint(0, 2)),
        "minProperties": lambda: rng.randrange(3), "maxProperties": lambda: rng.randrange(4),
        "dependentRequired": lambda: {rng.choice(KEYS): rng.sample(KEYS, 1)},
    }
    nested = {
        "properties": lambda: {k: sub() for k in rng.sample(KEYS, rng.randint(1, 2))}, "additionalProperties": sub,
        "patternProperties": lambda: {rng.choice(["^a", "b$", "c"]): sub()}, "propertyNames": lambda: {"pattern": "^[a-c]"},
        "items": sub, "prefixItems": lambda: [sub() for _ in range(rng.randint(1, 2))], "contains": sub, "not": sub, "if": sub,
        "then": sub, "else": sub, "allOf": lambda: [sub(), sub()], "anyOf": lambda: [sub(), sub()], "oneOf": lambda: [sub(), sub()],
        "dependentSchemas": lambda: {rng.choice(KEYS): sub()}, "unevaluatedProperties": lambda: False,
    }
    if not KNOWS_UNEVALUATED:
        del nested["unevaluatedProperties"]
    for _ in range(rng.randint(0, 2)):
        k = rng.choice(list(simple))
        s[k] = simple[k]()
    if depth > 0:
        for _ in range(rng.randint(0, 2)):
            k = rng.choice(list(nested))
            s[k] = nested[k]()
    return s


# The universe of the second comparison: as a schema, and all its values.
LEAVES, INNER, SCALARS_OF_UNIVERSE = [0, "a"], [True, 0, 1, "a"], [None, True, False, 0, 1, 10, "", "a", "ab"]


def container_schemas(items, names, most):
    return [{"type": "array", "maxItems": most, "items": items},
            {"type": "object", "maxProperties": most, "propertyNames": {"enum": names}, "additionalProperties": items}]


def containers(items, names, most):
    for n in range(most + 1):
        yield from (list(values) for values in itertools.product(items, repeat=n))
        for keys in itertools.combinations(names, n):
            yield from (dict(zip(keys, values)) for values in itertools.product(items, repeat=n))


ELEMENT = {"anyOf": [{"enum": INNER}, *container_schemas({"enum": LEAVES}, ["a"], 1)]}
UNIVERSE = {"anyOf": [{"enum": SCALARS_OF_UNIVERSE}, *container_schemas(ELEMENT, ["a", "b"], 2)]}
UNIVERSE_VALUES = SCALARS_OF_UNIVERSE + list(containers(INNER + list(containers(LEAVES, ["a"], 1)), ["a", "b"], 2))


def spellings(v):
    """Compact texts of the value, keys in every order."""
    if isinstance(v, list):
        return ["[" + ",".join(parts) + "]" for parts in itertools.product(*map(spellings, v))]
    if isinstance(v, dict):
        return ["{" + ",".join(f"{json.dumps(k)}:{text}" for k, text in parts) + "}"
                for order in itertools.permutations(v)
                for parts in itertools.product(*([(k, text) for text in spellings(v[k])] for k in order))]
    return [json.dumps(v)]


class Differential:
    def __init__(self, program, seed):
        self.rng = random.Random(seed)
        self.check = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.schemas = self.refused = self.documents = self.languages = self.wrong = 0

    def ask(self, request):
        self.check.stdin.write(json.dumps(request) + "\n")
        self.check.stdin.flush()
        answer = json.loads(self.check.stdout.readline())
        self.schemas += 1
        refused = "error" in answer and "unsatisfiable" not in answer["error"]
        self.refused += refused
        return None if refused else answer

    def disagree(self, *what):
        self.wrong += 1
        print("DISAGREE", *what, flush=True)

    def compare_documents(self):
        s = schema(self.rng, 2)
        docs = [value(self.rng, 2) for _ in range(12)]
        answer = self.ask({"schema": json.dumps(s), "documents": [json.dumps(d) for d in docs]})
        if answer is None:
            return
        validator = jsonschema.Draft202012Validator(s)
        for i, d in enumerate(docs):
            valid = validator.is_valid(d)
            accepted = "error" not in answer and answer["accepted"][i]
            self.documents += 1
            if valid != accepted:
                self.disagree("valid" if valid else "invalid", json.dumps(s), json.dumps(d), answer.get("error", ""))

    def compare_language(self):
        s = {"allOf": self.rng.choice([lambda a, b: [a, b], lambda a, b: [b, a]])(schema(self.rng, 2), UNIVERSE)}
        validator = jsonschema.Draft202012Validator(s["allOf"][0] if s["allOf"][1] is UNIVERSE else s["allOf"][1])
        texts = [text for v in UNIVERSE_VALUES if validator.is_valid(v) for text in spellings(v)]
        answer = self.ask({"schema": json.dumps(s), "language": texts})
        if answer is None:
            return
        self.languages += 1
        if ("error" in answer) != (not texts):
            self.disagree("the language has", len(texts), "texts:", json.dumps(s), answer.get("error", ""))
        for difference in answer.get("differences", [])[:3]:
            self.disagree(difference, json.dumps(s))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    run = Differential(args.program, args.seed)
    end = time.time() + args.seconds
    while time.time() < end:
        for _ in range(30):
            run.compare_documents()
        run.compare_language()
    print(f"seed {args.seed}: {run.schemas} schemas ({run.refused} refused), {run.documents} documents and {run.languages} "
          f"whole languages, {run.wrong} disagreements")
    sys.exit(1 if run.wrong else 0)


if __name__ == "__main__":
    main()
