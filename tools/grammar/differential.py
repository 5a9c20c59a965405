#!/usr/bin/env python3
"""Random schemas and documents: the grammar library against the `jsonschema` package.

    differential.py GRAMMAR_CHECK_PROGRAM [--seconds N] [--seed S]

GRAMMAR_CHECK_PROGRAM is build/bin/grammar_check: it reads lines {"schema": text, "documents": [text]} and answers
{"error": text} or {"accepted": [bool]}. Needs: pip install jsonschema
"""
import argparse
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
    for _ in range(rng.randint(0, 2)):
        k = rng.choice(list(simple))
        s[k] = simple[k]()
    if depth > 0:
        for _ in range(rng.randint(0, 2)):
            k = rng.choice(list(nested))
            s[k] = nested[k]()
    return s


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    check = subprocess.Popen([args.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    end, schemas, documents, refused, wrong = time.time() + args.seconds, 0, 0, 0, 0
    while time.time() < end:
        s = schema(rng, 2)
        docs = [value(rng, 2) for _ in range(12)]
        check.stdin.write(json.dumps({"schema": json.dumps(s), "documents": [json.dumps(d) for d in docs]}) + "\n")
        check.stdin.flush()
        answer = json.loads(check.stdout.readline())
        schemas += 1
        error = answer.get("error", "")
        if error and "unsatisfiable" not in error:
            refused += 1
            continue
        validator = jsonschema.Draft202012Validator(s)
        for i, d in enumerate(docs):
            valid = validator.is_valid(d)
            accepted = False if error else answer["accepted"][i]
            documents += 1
            if valid != accepted:
                wrong += 1
                print("DISAGREE", "valid" if valid else "invalid", json.dumps(s), json.dumps(d), error)
    print(f"seed {args.seed}: {schemas} schemas ({refused} refused), {documents} documents, {wrong} disagreements")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
