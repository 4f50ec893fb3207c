"""Conversations as the release renders them, in pieces: (text, special?, kind).

kind 0 is context, 1 what the model has to say, 2 text nobody could predict. A conversation is a dict:
  messages   list of {role, content, reasoning?, calls?}; content is a string, or a list of (string, kind)
  thinking   whether the last reply opens a reasoning block
  tools      list of {name, description, parameters}
  schema     a JSON schema for the reply, or "object"
"""

import json

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
THINK, THINK_END, DSML = "<think>", "</think>", "｜DSML｜"

EFFORT = {
    "low": "Reasoning Effort: 50 (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
    "high": "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
    "max": "Reasoning Effort: 100 (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
}

# the instructions the release puts before tool schemas; @ stands for the DSML token
TOOLS_HEAD = """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<@ calls>" block like the following:

<@ calls>
<@ invoke name="$TOOL_NAME">
<@ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</@ parameter>
...
</@ invoke>
<@ invoke name="$TOOL_NAME2">
...
</@ invoke>
</@ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by ^), you MUST output your complete reasoning inside ^...~ BEFORE any tool calls or final response.

Otherwise, output directly after ~ with tool calls or final response.

### Available Tool Schemas

"""
TOOLS_TAIL = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
MARKS = {"@": DSML, "^": THINK, "~": THINK_END}


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


class Pieces(list):
    def text(self, s, kind=0):
        if s:
            self.append((s, False, kind))

    def special(self, s, kind=0):
        self.append((s, True, kind))

    def marked(self, s, kind=0):
        """Text in which @, ^ and ~ stand for special tokens."""
        start = 0
        for i, c in enumerate(s):
            if c in MARKS:
                self.text(s[start:i], kind)
                self.special(MARKS[c], kind)
                start = i + 1
        self.text(s[start:], kind)

    def content(self, c, kind=0):
        for s, k in [(c, kind)] if isinstance(c, str) else c:
            self.text(s, k)

    def calls(self, calls, kind):
        self.text("\n\n<", kind), self.special(DSML, kind), self.text(" calls>\n", kind)
        for n, (name, arguments) in enumerate(calls):
            self.text("\n<" if n else "<", kind), self.special(DSML, kind)
            self.text(f' invoke name="{name}">\n', kind)
            for i, (key, value) in enumerate(arguments.items()):
                is_text = isinstance(value, str)
                self.text("\n<" if i else "<", kind), self.special(DSML, kind)
                shown = value if is_text else dumps(value)
                self.text(f' parameter name="{key}" string="{str(is_text).lower()}">{shown}</', kind)
                self.special(DSML, kind), self.text(" parameter>", kind)
            self.text("\n</", kind), self.special(DSML, kind), self.text(" invoke>", kind)
        self.text("\n</", kind), self.special(DSML, kind), self.text(" calls>", kind)


def render(conv, open_end=False):
    """Pieces of the whole conversation; with open_end the last message is the user's and the reply is begun."""
    messages = list(conv["messages"])
    thinking, tools, schema = conv.get("thinking", False), conv.get("tools"), conv.get("schema")
    if (tools or schema) and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": ""})
    p = Pieces()
    p.special(BOS)
    last = len(messages) - 1
    for i, msg in enumerate(messages):
        role = msg["role"]
        if i == 0 and (thinking or role == "system"):
            p.special(SYSTEM)
        if i == 0 and thinking:
            p.text(EFFORT[conv.get("effort", "high")])
        if role == "system":
            if i:
                p.special(SYSTEM)
            p.content(msg["content"])
            if i == 0 and tools:
                p.text("\n\n"), p.marked(TOOLS_HEAD), p.text("\n".join(dumps(t) for t in tools)), p.text(TOOLS_TAIL)
            if i == 0 and schema:
                shown = {"type": "json_object"} if schema == "object" else schema
                p.text("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n" + dumps(shown))
        elif role in ("user", "tool"):
            if i and messages[i - 1]["role"] in ("user", "tool"):
                p.text("\n\n")
            else:
                p.special(USER)
            if role == "tool":
                p.text("<tool_result>"), p.content(msg["content"]), p.text("</tool_result>")
            else:
                p.content(msg["content"])
        else:
            p.special(ASSISTANT)
            own = 1
            keeps = thinking and (tools or i == last)
            if keeps:
                p.special(THINK)
                p.text(msg.get("reasoning", ""), own)
                p.special(THINK_END, own)
            else:
                p.special(THINK_END)
            p.content(msg["content"], own)
            if msg.get("calls"):
                p.calls(msg["calls"], own)
            p.special(EOS, own)
    if open_end:
        p.special(ASSISTANT), p.special(THINK if thinking else THINK_END)
    return p
