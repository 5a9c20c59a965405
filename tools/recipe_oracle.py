#!/usr/bin/env python3
"""What the public wheel deepseek-recipe 0.2.0 makes of request bodies.

Reads records {"protocol", "body", "options"?} as JSON lines from stdin and writes them back with the fields of
tests/golden/recipe/README.md filled in (all but token ids). Fresh vectors for `recipe_vectors_test --file`:

  python3 -m venv .venv && .venv/bin/pip install deepseek-recipe==0.2.0
  .venv/bin/python tools/recipe_oracle.py < bodies.jsonl > vectors.jsonl
"""
import hashlib
import json
import sys

import deepseek_recipe as r

IMAGE_TOKEN = "<｜deepseek_image｜>"
REQUESTS = {"chat": r.ChatCompletionRequest, "responses": r.ResponsesRequest, "messages": r.MessagesRequest}
BEHAVIOURS = {"drop": r.WebSearchBehavior.Drop, "reject": r.WebSearchBehavior.Reject}
VERSIONS = {"V4": r.ModelVersion.DeepseekV4Pro, "V4.1": r.ModelVersion.DeepseekV41Flash}


def make_options(options):
    arguments = {}
    if "default_thinking_mode" in options:
        arguments["default_thinking_mode"] = options["default_thinking_mode"]
    if options.get("missing_reasoning") == "reject":
        arguments["reasoning_content_behavior"] = r.ReasoningContentBehavior.Reject
    for name in ("responses_web_search", "messages_web_search"):
        if name in options:
            arguments[name] = BEHAVIOURS[options[name]]
    for name in ("thinking_max_tokens_upper_bound", "non_thinking_max_tokens_upper_bound"):
        if name in options:
            arguments[name] = options[name]
    tokens = r.SpecialTokens(image=options.get("image_token", IMAGE_TOKEN))
    result = r.ConversionOptions(**arguments).with_special_tokens(tokens)
    for alias, version in options.get("aliases", {}).items():
        result = result.with_model_alias(alias, VERSIONS[version])
    return result, tokens


def tool_record(tool):
    record = {"name": tool.name, "description": tool.description, "parameters": tool.parameters,
              "strict": tool.strict}
    if tool.defer_loading:
        record["defer_loading"] = True
    return record


def image_record(image):
    source = image.url or image.data_url or ""
    return {"kind": image.kind, "detail": image.detail, "path": image.path,
            "sha256_of_source": hashlib.sha256(source.encode()).hexdigest()[:16]}


def message_record(message):
    record = {"role": message.role, "content": message.content}
    if message.reasoning_content is not None:
        record["reasoning_content"] = message.reasoning_content
    if message.tool_calls is not None:
        record["tool_calls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.tool_calls]
    if message.tool_call_id is not None:
        record["tool_call_id"] = message.tool_call_id
    if message.prefix:
        record["prefix"] = True
    if message.image_sources:
        record["images"] = [image_record(image) for image in message.image_sources]
    if getattr(message, "tools", None):
        record["tools"] = [tool_record(tool) for tool in message.tools]
    return record


def conversation_record(c):
    record = {"thinking": c.thinking_mode, "effort": c.reasoning_effort, "tool_choice": c.tool_choice,
              "response_format": c.response_format}
    if c.response_format == "json_schema":
        record["response_schema"] = c.response_schema
    if c.response_format == "regex":
        record["response_regex"] = c.response_regex
    record["tools"] = [tool_record(tool) for tool in c.tools]
    record["messages"] = [message_record(message) for message in c.messages]
    return record


def convert(record):
    options, tokens = make_options(record.get("options") or {})
    try:
        request = REQUESTS[record["protocol"]](record["body"])
    except r.ConversionError as e:
        return {"ok": False, "error": {"class": "body", "status": e.status_code, "message": str(e), "body": e.body}}
    except Exception as e:  # ValueError: not parseable into the request type
        return {"ok": False, "error": {"class": "body", "status": 400, "message": str(e)}}
    out = {}
    try:
        if record["protocol"] == "responses":
            echo = request.echo()
            out["echo"] = {name: getattr(echo, name) for name in
                           ("instructions", "max_output_tokens", "temperature", "top_p", "top_logprobs", "user")}
            names = request.namespace_tool_map(options)
            if names:
                out["namespace_tool_map"] = {name: list(pair) for name, pair in names.items()}
        result = request.convert(options)
    except r.ConversionError as e:
        return {"ok": False, "error": {"class": "conversion", "status": e.status_code, "message": str(e)}}
    is_v41 = result.model_version == r.ModelVersion.DeepseekV41Flash
    inference = result.inference_options
    constraint = inference.output_constraint
    parsing = result.parsing_options
    stage = parsing.thinking_initial_stage
    encoding = (r.DeepseekV41Encoding() if is_v41 else r.DeepseekV4Encoding()).with_special_tokens(tokens)
    rendered = encoding.render_conversation(result.conversation)
    at = lambda i: len(rendered.prompt[:i].encode())
    out.update({
        "ok": True, "version": "V4.1" if is_v41 else "V4",
        "conversation": conversation_record(result.conversation),
        "inference": {
            "max_tokens": inference.max_tokens, "temperature": inference.temperature,
            "top_p": round(inference.top_p, 6), "logprobs": inference.logprobs,
            "top_logprobs": inference.top_logprobs, "seed": inference.seed,
            "constraint": constraint and {"kind": constraint.kind, "schema": constraint.schema}},
        "parsing": {
            "parse_tool_calls": parsing.parse_tool_calls, "starts_in_tool_calls": parsing.starts_in_tool_calls,
            "parse_json_output": parsing.parse_json_output,
            "thinking_initial_stage": stage and str(stage).split(".")[-1],
            "stop_sequences": parsing.stop_sequences},
        "stream": result.stream, "prompt": rendered.prompt,
        "special": [[at(a), at(b)] for a, b in rendered.special_ranges], "images": len(rendered.image_sources)})
    return out


def main():
    for line in sys.stdin:
        record = json.loads(line)
        record.update(convert(record))
        print(json.dumps(record, ensure_ascii=False))


if __name__ == "__main__":
    main()
