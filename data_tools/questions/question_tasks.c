/* The table of tasks, and the fields that are made of others. Source: lm-evaluation-harness
 * 0.4.13.dev0, lm_eval/tasks and api/task.py. */
#include "questions/question_tasks.h"

#include "text/unicode/characters.h"

#include <stdbool.h>
#include <string.h>

/* ---- texts ---- */

bp_err question_text(const json_t *row, const char *field, const char **text, size_t *bytes)
{
    const json_t *value = json_object_get(row, field);

    *text = "";
    *bytes = 0;
    if (!json_is_string(value))
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_field", "there is no text \"%s\"", field);
    *text = json_string_value(value);
    *bytes = json_string_length(value);
    return BP_OK;
}

void question_set(json_t *row, const char *field, const char *text, size_t bytes)
{
    (void)json_object_set_new_nocheck(row, field, json_stringn_nocheck(bytes ? text : "", bytes));
}

static void set_buffer(json_t *row, const char *field, bp_buffer *text)
{
    question_set(row, field, text->data, text->bytes);
    bp_buffer_clear(text);
}

/* Without white space at both ends, as str.strip(). */
static void strip(const char **text, size_t *bytes)
{
    size_t first = *bytes, end = 0;

    for (size_t at = 0, length; at < *bytes; at += length) {
        uint32_t c;

        length = bp_character_at(*text + at, *bytes - at, &c);
        if (bp_character_is_space(c))
            continue;
        first = at < first ? at : first;
        end = at + length;
    }
    *text += first;
    *bytes = end > first ? end - first : 0;
}

static size_t first_character(const char *text, size_t bytes)
{
    uint32_t c;

    return bytes > 0 ? bp_character_at(text, bytes, &c) : 0;
}

/* As str.replace(). */
static void replace(bp_buffer *text, const char *old, const char *new)
{
    bp_buffer out = {0};
    size_t length = strlen(old);

    for (size_t at = 0; at < text->bytes;) {
        bool found = at + length <= text->bytes && memcmp(text->data + at, old, length) == 0;

        bp_buffer_add(&out, found ? new : text->data + at, found ? strlen(new) : 1);
        at += found ? length : 1;
    }
    bp_buffer_clear(text);
    *text = out;
}

/* ---- LAMBADA ---- */

/* "before", and the "last" word, after the last blank. */
static bp_err split_last_word(json_t *row)
{
    const char *text;
    size_t bytes, at;
    bp_err err = question_text(row, "text", &text, &bytes);

    if (err != BP_OK)
        return err;
    for (at = bytes; at > 0 && text[at - 1] != ' ';)
        at--;
    question_set(row, "before", text, at > 0 ? at - 1 : 0);
    question_set(row, "last", text + at, bytes - at);
    return BP_OK;
}

/* ---- BLiMP ---- */

static bp_err first_is_right(json_t *row)
{
    (void)json_object_set_new(row, "gold", json_integer(0));
    return BP_OK;
}

/* ---- HellaSwag ---- */

/* Text of WikiHow without "[title]", "[step]" and the like, of one line each. */
static void clean(bp_buffer *out, const char *text, size_t bytes)
{
    bp_buffer all = {0};

    strip(&text, &bytes);
    bp_buffer_add(&all, text, bytes);
    replace(&all, " [title]", ". ");
    for (size_t at = 0; at < all.bytes;) {
        const char *open = all.data + at;
        const char *close = *open == '[' ? memchr(open, ']', all.bytes - at) : NULL;

        if (close && !memchr(open, '\n', (size_t)(close - open))) {
            at += (size_t)(close - open) + 1;
            continue;
        }
        bp_buffer_add(out, open, 1);
        at++;
    }
    bp_buffer_clear(&all);
    replace(out, "  ", " ");
}

static bp_err clean_list(json_t *row, const char *field)
{
    const json_t *list = json_object_get(row, field);
    json_t *cleaned = json_array();

    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *text = json_array_get(list, k);
        bp_buffer out = {0};

        if (!json_is_string(text)) {
            json_decref(cleaned);
            return BP_FAIL(BP_ERR_FORMAT, "questions.no_field", "\"%s\" is not a list of texts",
                           field);
        }
        clean(&out, json_string_value(text), json_string_length(text));
        (void)json_array_append_new(cleaned,
                                    json_stringn_nocheck(out.bytes ? out.data : "", out.bytes));
        bp_buffer_clear(&out);
    }
    if (json_is_array(list))
        (void)json_object_set(row, field, cleaned);
    json_decref(cleaned);
    return BP_OK;
}

static bp_err clean_hellaswag(json_t *row)
{
    static const char *const FIELDS[] = {"activity_label", "ctx_a", "ctx_b"};
    const char *text[3];
    size_t bytes[3];
    bp_buffer all = {0}, query = {0};
    bp_err err = BP_OK;

    for (int k = 0; k < 3 && err == BP_OK; k++)
        err = question_text(row, FIELDS[k], &text[k], &bytes[k]);
    if (err != BP_OK)
        return err;
    bp_buffer_add(&all, text[0], bytes[0]);
    bp_buffer_add(&all, ": ", 2);
    bp_buffer_add(&all, text[1], bytes[1]);
    bp_buffer_add(&all, " ", 1);
    bp_text_capitalize(&all, text[2], bytes[2]);
    clean(&query, all.data, all.bytes);
    set_buffer(row, "query", &query);
    bp_buffer_clear(&all);
    return clean_list(row, "endings");
}

/* ---- WinoGrande ---- */

/* What is "before" the first "_", and the "rest" after it. */
static bp_err split_at_blank(json_t *row)
{
    const char *text, *blank;
    size_t bytes;
    bp_err err = question_text(row, "sentence", &text, &bytes);

    if (err != BP_OK)
        return err;
    blank = memchr(text, '_', bytes);
    if (!blank)
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_blank", "\"sentence\" has no \"_\"");
    question_set(row, "before", text, (size_t)(blank - text));
    bytes -= (size_t)(blank + 1 - text);
    text = blank + 1;
    strip(&text, &bytes);
    question_set(row, "rest", text, bytes);
    return BP_OK;
}

/* ---- ARC and OpenBookQA ---- */

/* "choices" as published, a list of {"text", "label"}, or as columns, {"text": [], "label": []}. */
static const json_t *choice_part(const json_t *choices, size_t k, const char *part)
{
    return json_is_array(choices) ? json_object_get(json_array_get(choices, k), part)
                                  : json_array_get(json_object_get(choices, part), k);
}

/* The choice whose label is `key`, except for white space around that; -1: none. */
static json_int_t labelled(const json_t *choices, size_t count, const char *key)
{
    size_t bytes = strlen(key);

    strip(&key, &bytes);
    for (size_t k = 0; k < count; k++) {
        const char *label = json_string_value(choice_part(choices, k, "label"));

        if (label && strncmp(label, key, bytes) == 0 && label[bytes] == '\0')
            return (json_int_t)k;
    }
    return -1;
}

/* "stem", "texts" and "gold" of a question and its choices. */
static bp_err list_choices(json_t *row)
{
    const json_t *question = json_object_get(row, "question"), *choices;
    const json_t *stem = json_is_object(question) ? json_object_get(question, "stem") : question;
    const char *key = json_string_value(json_object_get(row, "answerKey"));
    json_t *texts = json_array();
    size_t count;

    stem = stem ? stem : json_object_get(row, "question_stem");
    choices = json_object_get(json_is_object(question) ? question : row, "choices");
    count = json_is_array(choices) ? json_array_size(choices)
                                   : json_array_size(json_object_get(choices, "text"));
    for (size_t k = 0; k < count; k++)
        (void)json_array_append(texts, (json_t *)choice_part(choices, k, "text"));
    (void)json_object_set(row, "stem", (json_t *)stem);
    (void)json_object_set_new(row, "texts", texts);
    if (!key || key[0] == '\0')
        return BP_OK;
    (void)json_object_set_new(row, "gold", json_integer(labelled(choices, count, key)));
    return BP_OK;
}

/* ---- COPA ---- */

/* A text whose first character is in lower case, as `to`. */
static bp_err begin_lower(json_t *row, const char *from, const char *to)
{
    const char *text;
    size_t bytes, first;
    bp_buffer out = {0};
    bp_err err = question_text(row, from, &text, &bytes);

    if (err != BP_OK)
        return err;
    if (bytes == 0)
        return BP_FAIL(BP_ERR_FORMAT, "questions.empty", "\"%s\" is empty", from);
    first = first_character(text, bytes);
    bp_text_lowercase(&out, text, first);
    bp_buffer_add(&out, text + first, bytes - first);
    set_buffer(row, to, &out);
    return BP_OK;
}

/* The premise without its full stop, and a connector; of equal choices the first is right. */
static bp_err connect(json_t *row)
{
    const json_t *label = json_object_get(row, "label");
    const char *text, *kind = json_string_value(json_object_get(row, "question"));
    bool cause = kind && strcmp(kind, "cause") == 0;
    size_t bytes, last = 0;
    bp_buffer before = {0};
    bp_err err = question_text(row, "premise", &text, &bytes);

    if (err == BP_OK && !cause && (!kind || strcmp(kind, "effect") != 0))
        err = BP_FAIL(BP_ERR_FORMAT, "questions.no_field",
                      "\"question\" is neither \"cause\" nor \"effect\"");
    if (err == BP_OK)
        err = begin_lower(row, "choice1", "first");
    if (err == BP_OK)
        err = begin_lower(row, "choice2", "second");
    if (err != BP_OK)
        return err;
    strip(&text, &bytes);
    for (size_t at = 0; at < bytes; at += first_character(text + at, bytes - at))
        last = at;
    bp_buffer_add(&before, text, last);
    bp_buffer_printf(&before, " %s", cause ? "because" : "therefore");
    set_buffer(row, "before", &before);
    if (json_integer_value(label) == 1 &&
        json_equal(json_object_get(row, "first"), json_object_get(row, "second")))
        label = json_false();
    if (label)
        (void)json_object_set(row, "gold", (json_t *)label);
    return BP_OK;
}

/* ---- MMLU ---- */

/* The question without white space around it; "choices" (a list) as "A" to "D". */
static bp_err letter_choices(json_t *row)
{
    static const char *const LETTERS[] = {"A", "B", "C", "D"};
    const json_t *list = json_object_get(row, "choices");
    const char *text;
    size_t bytes;
    bp_err err = question_text(row, "question", &text, &bytes);

    if (err != BP_OK)
        return err;
    strip(&text, &bytes);
    question_set(row, "stem", text, bytes);
    for (size_t k = 0; k < 4 && json_is_array(list); k++)
        (void)json_object_set(row, LETTERS[k], json_array_get(list, k));
    return BP_OK;
}

static void introduce_subject(bp_buffer *out, const char *part)
{
    bp_buffer_printf(out, "The following are multiple choice questions (with answers) about ");
    for (const char *at = part; *at; at++)
        bp_buffer_add(out, *at == '_' ? " " : at, 1);
    bp_buffer_printf(out, ".\n\n");
}

static const char *area_of(const char *part)
{
    static const struct {
        const char *group, *parts;
    } AREAS[] = {
        {"mmlu_stem",
         " abstract_algebra anatomy astronomy college_biology college_chemistry "
         "college_computer_science college_mathematics college_physics computer_security "
         "conceptual_physics electrical_engineering elementary_mathematics high_school_biology "
         "high_school_chemistry high_school_computer_science high_school_mathematics "
         "high_school_physics high_school_statistics machine_learning "},
        {"mmlu_humanities",
         " formal_logic high_school_european_history high_school_us_history "
         "high_school_world_history international_law jurisprudence logical_fallacies "
         "moral_disputes moral_scenarios philosophy prehistory professional_law world_religions "},
        {"mmlu_social_sciences",
         " econometrics high_school_geography high_school_government_and_politics "
         "high_school_macroeconomics high_school_microeconomics high_school_psychology "
         "human_sexuality professional_psychology public_relations security_studies sociology "
         "us_foreign_policy "},
        {"mmlu_other",
         " business_ethics clinical_knowledge college_medicine global_facts human_aging management "
         "marketing medical_genetics miscellaneous nutrition professional_accounting "
         "professional_medicine virology "}};
    size_t length = strlen(part);

    for (size_t k = 0; k < sizeof AREAS / sizeof AREAS[0]; k++)
        for (const char *at = AREAS[k].parts; (at = strstr(at, part)) != NULL; at++)
            if (at[-1] == ' ' && at[length] == ' ')
                return AREAS[k].group;
    return NULL;
}

/* ---- the table ---- */

static const question_task TASKS[] = {{.name = "lambada",
                                       .parts = "openai standard",
                                       .prepare = split_last_word,
                                       .context = "{before}",
                                       .target = " {last}"},
                                      {.name = "blimp",
                                       .parts = "*",
                                       .part = "UID",
                                       .prepare = first_is_right,
                                       .context = "",
                                       .choices = {"{sentence_good}", "{sentence_bad}"},
                                       .answers = {"gold"},
                                       .ids = {"pairID"},
                                       .group = "linguistics_term",
                                       .shots = SHOTS_NONE},
                                      {.name = "hellaswag",
                                       .prepare = clean_hellaswag,
                                       .context = "{query}",
                                       .list = "endings",
                                       .answers = {"label"},
                                       .ids = {"ind"},
                                       .group = "split_type",
                                       .shots = SHOTS_OTHER},
                                      {.name = "winogrande",
                                       .prepare = split_at_blank,
                                       .contexts = {"{before}{option1}", "{before}{option2}"},
                                       .target = "{rest}",
                                       .answers = {"answer"},
                                       .keys = "12",
                                       .ids = {"qID"},
                                       .shots = SHOTS_OTHER},
                                      {.name = "arc",
                                       .parts = "easy challenge",
                                       .prepare = list_choices,
                                       .context = "Question: {stem}\nAnswer:",
                                       .list = "texts",
                                       .answers = {"gold"},
                                       .ids = {"id"}},
                                      {.name = "piqa",
                                       .context = "Question: {goal}\nAnswer:",
                                       .choices = {"{sol1}", "{sol2}"},
                                       .answers = {"label"},
                                       .ids = {"id"},
                                       .shots = SHOTS_OTHER},
                                      {.name = "openbookqa",
                                       .prepare = list_choices,
                                       .context = "{stem}",
                                       .list = "texts",
                                       .answers = {"gold"},
                                       .ids = {"id"}},
                                      {.name = "boolq",
                                       .context = "{passage}\nQuestion: {question}?\nAnswer:",
                                       .choices = {"no", "yes"},
                                       .answers = {"label", "answer"},
                                       .ids = {"idx"},
                                       .shots = SHOTS_OTHER},
                                      {.name = "copa",
                                       .prepare = connect,
                                       .context = "{before}",
                                       .choices = {" {first}", " {second}"},
                                       .answers = {"gold"},
                                       .ids = {"idx"},
                                       .shots = SHOTS_OTHER},
                                      {.name = "mmlu",
                                       .parts = "*",
                                       .part = "subject",
                                       .columns = {"question", "A", "B", "C", "D", "answer"},
                                       .prepare = letter_choices,
                                       .introduce = introduce_subject,
                                       .context = "{stem}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\nAnswer:",
                                       .choices = {"A", "B", "C", "D"},
                                       .answers = {"answer"},
                                       .keys = "ABCD",
                                       .group_of = area_of,
                                       .shots = SHOTS_FIRST}};

/* Is it one of the words of `parts`? */
static bool is_part(const char *parts, const char *part)
{
    size_t bytes = strlen(part);

    for (const char *at = parts; at && *at != '\0'; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");

        if ((word == 1 && *at == '*') || (word == bytes && memcmp(at, part, bytes) == 0))
            return true;
        at += word;
    }
    return false;
}

bp_err question_task_find(const question_task **task, const char **part, const char *name)
{
    for (size_t k = 0; k < sizeof TASKS / sizeof TASKS[0]; k++) {
        size_t length = strlen(TASKS[k].name);

        if (strncmp(name, TASKS[k].name, length) != 0 ||
            (name[length] != '\0' && (name[length] != '_' || !TASKS[k].parts)))
            continue;
        *task = &TASKS[k];
        *part = name[length] != '\0' ? name + length + 1 : NULL;
        if (!*part || is_part(TASKS[k].parts, *part))
            return BP_OK;
    }
    return BP_FAIL(BP_ERR_USAGE, "questions.no_task",
                   "there is no task '%s': at --task; there are lambada, blimp, hellaswag, "
                   "winogrande, arc, piqa, openbookqa, boolq, copa and mmlu",
                   name);
}
