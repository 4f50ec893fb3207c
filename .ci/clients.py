"""The official `openai` client against `finback serve` on the embedded demo model."""

import subprocess
import sys

import openai


def start(binary):
    server = subprocess.Popen(
        [binary, "serve", "--port", "0", "--context", "512"], stdout=subprocess.PIPE, text=True
    )
    address = None
    for line in server.stdout:
        print(line, end="")
        for word in line.split():
            if address is None and word.startswith("http://"):
                address = word.rstrip("/")
        if "curl " in line:
            return server, address
    sys.exit("the server ends before it prints its address")


def refused(call, word):
    try:
        call()
    except openai.BadRequestError as error:
        assert word in str(error), f"{word!r} in {error}"
        return
    sys.exit(f"not refused: {word}")


def main():
    server, address = start(sys.argv[1])
    try:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        model = client.models.list().data[0].id
        messages = [{"role": "user", "content": "Say something."}]
        asked = {"model": model, "messages": messages, "max_tokens": 24, "temperature": 0.7, "seed": 3}

        whole = client.chat.completions.create(**asked)
        usage = whole.usage
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        assert whole.choices[0].finish_reason in ("stop", "length")

        streamed, last = {"content": "", "reasoning_content": ""}, None
        options = {"include_usage": True}
        for chunk in client.chat.completions.create(**asked, stream=True, stream_options=options):
            for choice in chunk.choices:
                for part in streamed:
                    streamed[part] += getattr(choice.delta, part, None) or ""
            last = chunk
        # How much of a prompt was restored depends on what ran before; the counts do not.
        for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert getattr(last.usage, count) == getattr(usage, count), f"{last.usage}, {usage}"
        for part, text in streamed.items():
            assert text == (getattr(whole.choices[0].message, part, None) or ""), part

        ids = [5, 9, 2]
        done = client.completions.create(model=model, prompt=ids, max_tokens=8, temperature=0)
        again = client.completions.create(model=model, prompt=ids, max_tokens=8, temperature=0)
        assert done.usage.prompt_tokens == len(ids)
        assert done.choices[0].text == again.choices[0].text
        sha = done.model_extra["finback"]["token_sha"]
        assert sha == again.model_extra["finback"]["token_sha"] and len(sha) == 64

        refused(lambda: client.chat.completions.create(**asked | {"temperature": -1}), "temperature")
        refused(lambda: client.completions.create(model=model, prompt=[10**7]), "10000000")
        print("clients: openai", openai.__version__, "passed")
    finally:
        server.terminate()
        server.wait(timeout=120)


main()
