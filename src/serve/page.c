/* The page to try a model by hand. */
#include "api.h"

#include "report/page/html.h"
#include "report/page/page.h"

static const char text_form[] =
    "<p><textarea id=\"prompt\" rows=\"5\" cols=\"90\"></textarea></p>\n"
    "<p>tokens <input id=\"max_tokens\" type=\"number\" min=\"1\" value=\"100\"> "
    "temperature <input id=\"temperature\" type=\"number\" min=\"0\" step=\"0.1\" value=\"0.8\"> "
    "seed <input id=\"seed\" type=\"number\" min=\"0\"> "
    "<button id=\"go\">Continue</button> <button id=\"halt\">Stop</button></p>\n"
    "<pre id=\"out\" style=\"white-space: pre-wrap; max-width: 60em\"></pre>\n"
    "<p class=\"note\" id=\"note\"></p>\n"
    "<script>\n"
    "const $ = id => document.getElementById(id);\n"
    "let halt = null;\n"
    "$('halt').onclick = () => halt && halt.abort();\n"
    "$('go').onclick = async () => {\n"
    "  if (halt) halt.abort();\n"
    "  const own = halt = new AbortController();\n"
    "  $('out').textContent = $('prompt').value;\n"
    "  $('note').textContent = '';\n"
    "  const body = {prompt: $('prompt').value, max_tokens: +$('max_tokens').value,\n"
    "    temperature: +$('temperature').value, stream: true,\n"
    "    stream_options: {include_usage: true}};\n"
    "  if ($('seed').value !== '') body.seed = +$('seed').value;\n"
    "  const begin = performance.now();\n"
    "  try {\n"
    "    const reply = await fetch('/v1/completions', {method: 'POST', signal: own.signal,\n"
    "      headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});\n"
    "    if (!reply.ok) { $('note').textContent = (await reply.json()).error.message; return; }\n"
    "    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();\n"
    "    for (let rest = '';;) {\n"
    "      const {value, done} = await reader.read();\n"
    "      if (done || own.signal.aborted) break;\n"
    "      const lines = (rest + value).split('\\n');\n"
    "      rest = lines.pop();\n"
    "      for (const line of lines) {\n"
    "        if (!line.startsWith('data: {')) continue;\n"
    "        const part = JSON.parse(line.slice(6));\n"
    "        if (part.error) { $('note').textContent = part.error.message; continue; }\n"
    "        for (const choice of part.choices) $('out').textContent += choice.text;\n"
    "        if (part.usage) $('note').textContent = part.usage.completion_tokens + ' tokens, ' +\n"
    "          (1e3 * part.usage.completion_tokens / (performance.now() - begin)).toFixed(1) +\n"
    "          ' tokens/s, seed ' + part.seed;\n"
    "      }\n"
    "    }\n"
    "  } catch (error) { if (!own.signal.aborted) $('note').textContent = error.message; }\n"
    "};\n"
    "</script>\n";

static const char predict_form[] =
    "<p>A sample, or a list of samples, as nested lists:</p>\n"
    "<p><textarea id=\"inputs\" rows=\"8\" cols=\"90\"></textarea></p>\n"
    "<p><button id=\"go\">Predict</button></p>\n"
    "<pre id=\"out\" style=\"white-space: pre-wrap\"></pre>\n"
    "<script>\n"
    "const $ = id => document.getElementById(id);\n"
    "$('go').onclick = async () => {\n"
    "  const reply = await fetch('/predict', {method: 'POST',\n"
    "    headers: {'Content-Type': 'application/json'},\n"
    "    body: '{\"inputs\": ' + $('inputs').value + '}'});\n"
    "  const answer = await reply.json();\n"
    "  $('out').textContent = reply.ok ? JSON.stringify(answer, null, 1) : answer.error.message;\n"
    "};\n"
    "</script>\n";

static void page_fact(tr_str_t *out, const char *name, const char *value) {
    tr_str_append(out, "<div>");
    tr_html_element(out, "dt", name);
    tr_html_element(out, "dd", value);
    tr_str_append(out, "</div>\n");
}

static void page_number(tr_str_t *out, const char *name, int64_t value) {
    char text[32];
    tr_snprintf(text, sizeof text, "%lld", (long long)value);
    page_fact(out, name, text);
}

void tr_api_page(const tr_api_model_t *m, tr_str_t *out) {
    char shape[96];
    tr_page_head(m->name, 0, out);
    tr_html_element(out, "h1", m->name);
    tr_str_append(out, "<dl>\n");
    page_fact(out, "device", m->device->description);
    if (m->engine) {
        page_number(out, "context", m->texts->context);
        page_number(out, "slots", m->engine->slots);
    } else {
        const tr_predictor_info_t *info = tr_predictor_info(m->predict->predictor);
        page_fact(out, "shape of a sample", tr_shape_format(&info->shape, shape));
        page_number(out, info->classes > 0 ? "classes" : "targets", info->outputs);
    }
    tr_str_append(out, "</dl>\n");
    tr_str_append(out, m->engine ? text_form : predict_form);
    tr_str_append(out, "<p class=\"note\">trainer ");
    tr_html_text(out, m->version);
    tr_str_append(out, "</p></body></html>\n");
}
