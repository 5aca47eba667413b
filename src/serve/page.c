/* The page to try a model by hand. */
#include "api.h"

#include "report/page/html.h"
#include "report/page/page.h"

static const char text_form[] =
    "<label>Prompt<textarea id=\"prompt\" rows=\"5\" placeholder=\"The text that the model "
    "continues\"></textarea></label>\n"
    "<p class=\"form\"><label>Tokens<input id=\"max_tokens\" type=\"number\" min=\"1\" "
    "value=\"100\"></label> "
    "<label>Temperature<input id=\"temperature\" type=\"number\" min=\"0\" step=\"0.1\" "
    "value=\"0.8\"></label> "
    "<label>Seed<input id=\"seed\" type=\"number\" min=\"0\" placeholder=\"drawn\"></label> "
    "<button id=\"go\">Continue</button> <button id=\"halt\" class=\"quiet\">Stop</button></p>\n"
    "<pre id=\"out\" class=\"words\"></pre>\n"
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
    "<label>A sample, or a list of samples, as nested lists<textarea id=\"inputs\" "
    "rows=\"8\"></textarea></label>\n"
    "<p class=\"form\"><button id=\"go\">Predict</button></p>\n"
    "<pre id=\"out\" class=\"words\"></pre>\n"
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

void tr_api_page(const tr_api_model_t *m, tr_str_t *out) {
    char shape[96];
    tr_page_head(m->name, NULL, false, 0, out);
    tr_str_append(out, "<dl>\n");
    tr_html_fact(out, "device", m->device->description);
    if (m->engine) {
        tr_html_fact_number(out, "context (tokens)", "%.0f", (double)m->texts->context);
        tr_html_fact_number(out, "slots (texts at a time)", "%.0f", (double)m->engine->slots);
    } else {
        const tr_predictor_info_t *info = tr_predictor_info(m->predict->predictor);
        tr_html_fact(out, "shape of a sample", tr_shape_format(&info->shape, shape));
        tr_html_fact_number(out, info->classes > 0 ? "classes" : "targets", "%.0f",
                            (double)info->outputs);
    }
    tr_str_append(out, "</dl>\n");
    tr_str_append(out, m->engine ? text_form : predict_form);
    tr_str_append(out, "<p class=\"note\">trainer ");
    tr_html_text(out, m->version);
    tr_str_append(out, "</p></body></html>\n");
}
