/* Text from a template and JSON: the part of Mustache that pages need. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/err.h"

/** Render `text` with `data`, to the end of `out`.
 *
 *   {{name}}  {{{name}}}    the value, escaped for HTML, and as it is; {{.}} is the value itself
 *   {{#name}} ... {{/name}} once for each element of an array; once inside any other value; not at
 *                           all for null, false, an empty array and a name that is not there
 *   {{^name}} ... {{/name}} where {{#name}} gives nothing
 *   {{! words }}            nothing
 *
 * a.b is b of a. A name that an object lacks is looked up in the enclosing sections; an unknown
 * name is empty. A line with only a section's tag or a comment leaves no empty line. Integers have
 * commas between thousands ({{{name}}}: none), reals 6 digits: for other digits, give a string.
 *
 * `name` is the template's, for messages.
 * Errors:     BP_ERR_FORMAT a tag without its end, with name and line; BP_ERR_SYSTEM.
 * Source:     mustache.github.io; without partials, lambdas, and other delimiters.
 */
bp_err bp_template_render(bp_buffer *out, const char *text, const char *name, const json_t *data);

/** Add text with & < > " escaped for HTML; control characters except tab and line ends become
 * \xNN. */
void bp_html_escape(bp_buffer *out, const char *text, size_t bytes);
/** Add JSON text that is safe in a <script>: without '<', which could end it. */
void bp_script_escape(bp_buffer *out, const char *json);
