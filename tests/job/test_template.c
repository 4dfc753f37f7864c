/* Cases with a name are those of Mustache's own specification (github.com/mustache/spec, v1.4):
 * interpolation, sections, inverted, comments. What they say of partials, lambdas and delimiters is
 * not ours. */
#include "bp_test.h"

#include "job/report/template.h"

typedef struct example {
    const char *name, *data, *text, *expected;
} example;

static const example SPEC[] = {
    /* interpolation */
    {"No Interpolation", "{}", "Hello from {Mustache}!\n", "Hello from {Mustache}!\n"},
    {"Basic Interpolation", "{\"subject\": \"world\"}", "Hello, {{subject}}!\n", "Hello, world!\n"},
    {"HTML Escaping", "{\"forbidden\": \"& \\\" < >\"}",
     "These characters should be HTML escaped: {{forbidden}}\n",
     "These characters should be HTML escaped: &amp; &quot; &lt; &gt;\n"},
    {"Triple Mustache", "{\"forbidden\": \"& \\\" < >\"}",
     "These characters should not be HTML escaped: {{{forbidden}}}\n",
     "These characters should not be HTML escaped: & \" < >\n"},
    {"Basic Integer Interpolation", "{\"mph\": 85}", "\"{{mph}} miles an hour!\"",
     "\"85 miles an hour!\""},
    {"Triple Mustache Integer Interpolation", "{\"mph\": 85}", "\"{{{mph}}} miles an hour!\"",
     "\"85 miles an hour!\""},
    {"Basic Decimal Interpolation", "{\"power\": 1.21}", "\"{{power}} jiggawatts!\"",
     "\"1.21 jiggawatts!\""},
    {"Basic Null Interpolation", "{\"cannot\": null}", "I ({{cannot}}) be seen!", "I () be seen!"},
    {"Basic Context Miss Interpolation", "{}", "I ({{cannot}}) be seen!", "I () be seen!"},
    {"Dotted Names - Basic Interpolation", "{\"person\": {\"name\": \"Joe\"}}",
     "\"{{person.name}}\" == \"{{#person}}{{name}}{{/person}}\"", "\"Joe\" == \"Joe\""},
    {"Dotted Names - Arbitrary Depth",
     "{\"a\": {\"b\": {\"c\": {\"d\": {\"e\": {\"name\": \"Phil\"}}}}}}",
     "\"{{a.b.c.d.e.name}}\" == \"Phil\"", "\"Phil\" == \"Phil\""},
    {"Dotted Names - Broken Chains", "{\"a\": {}}", "\"{{a.b.c}}\" == \"\"", "\"\" == \"\""},
    {"Dotted Names - Broken Chain Resolution", "{\"a\": {\"b\": {}}, \"c\": {\"name\": \"Jim\"}}",
     "\"{{a.b.c.name}}\" == \"\"", "\"\" == \"\""},
    {"Dotted Names - Initial Resolution",
     "{\"a\": {\"b\": {\"c\": {\"d\": {\"e\": {\"name\": \"Phil\"}}}}}, \"b\": {\"c\": {\"d\": "
     "{\"e\": {\"name\": \"Wrong\"}}}}}",
     "\"{{#a}}{{b.c.d.e.name}}{{/a}}\" == \"Phil\"", "\"Phil\" == \"Phil\""},
    {"Dotted Names - Context Precedence", "{\"a\": {\"b\": {}}, \"b\": {\"c\": \"ERROR\"}}",
     "{{#a}}{{b.c}}{{/a}}", ""},
    {"Implicit Iterators - Basic Interpolation", "\"world\"", "Hello, {{.}}!\n", "Hello, world!\n"},
    {"Implicit Iterators - HTML Escaping", "\"& \\\" < >\"", "{{.}}\n", "&amp; &quot; &lt; &gt;\n"},
    {"Interpolation - Surrounding Whitespace", "{\"string\": \"---\"}", "| {{string}} |",
     "| --- |"},
    {"Interpolation - Standalone", "{\"string\": \"---\"}", "  {{string}}\n", "  ---\n"},
    {"Interpolation With Padding", "{\"string\": \"---\"}", "|{{ string }}|", "|---|"},
    {"Triple Mustache With Padding", "{\"string\": \"---\"}", "|{{{ string }}}|", "|---|"},
    /* sections */
    {"Truthy", "{\"boolean\": true}", "\"{{#boolean}}This should be rendered.{{/boolean}}\"",
     "\"This should be rendered.\""},
    {"Falsey", "{\"boolean\": false}", "\"{{#boolean}}This should not be rendered.{{/boolean}}\"",
     "\"\""},
    {"Null is falsey", "{\"null\": null}", "\"{{#null}}This should not be rendered.{{/null}}\"",
     "\"\""},
    {"Context", "{\"context\": {\"name\": \"Joe\"}}", "\"{{#context}}Hi {{name}}.{{/context}}\"",
     "\"Hi Joe.\""},
    {"Parent contexts",
     "{\"a\": \"foo\", \"b\": \"wrong\", \"sec\": {\"b\": \"bar\"}, \"c\": "
     "{\"d\": \"baz\"}}",
     "\"{{#sec}}{{a}}, {{b}}, {{c.d}}{{/sec}}\"", "\"foo, bar, baz\""},
    {"Variable test", "{\"foo\": \"bar\"}", "\"{{#foo}}{{.}} is {{foo}}{{/foo}}\"",
     "\"bar is bar\""},
    {"List Contexts",
     "{\"tops\": [{\"tname\": {\"upper\": \"A\", \"lower\": \"a\"}, \"middles\": [{\"mname\": "
     "\"1\", \"bottoms\": [{\"bname\": \"x\"}, {\"bname\": \"y\"}]}]}]}",
     "{{#tops}}{{#middles}}{{tname.lower}}{{mname}}.{{#bottoms}}{{tname.upper}}{{mname}}{{bname}}"
     ".{{/bottoms}}{{/middles}}{{/tops}}",
     "a1.A1x.A1y."},
    {"Deeply Nested Contexts",
     "{\"a\": {\"one\": 1}, \"b\": {\"two\": 2}, \"c\": {\"three\": 3, \"d\": {\"four\": 4, "
     "\"five\": 5}}}",
     "{{#a}}\n{{one}}\n{{#b}}\n{{one}}{{two}}{{one}}\n{{#c}}\n{{one}}{{two}}{{three}}{{two}}{{one}}"
     "\n{{#d}}\n{{one}}{{two}}{{three}}{{four}}{{three}}{{two}}{{one}}\n{{/d}}\n{{/c}}\n{{/b}}\n"
     "{{/a}}\n",
     "1\n121\n12321\n1234321\n"},
    {"List", "{\"list\": [{\"item\": 1}, {\"item\": 2}, {\"item\": 3}]}",
     "\"{{#list}}{{item}}{{/list}}\"", "\"123\""},
    {"Empty List", "{\"list\": []}", "\"{{#list}}Yay lists!{{/list}}\"", "\"\""},
    {"Doubled", "{\"bool\": true, \"two\": \"second\"}",
     "{{#bool}}\n* first\n{{/bool}}\n* {{two}}\n{{#bool}}\n* third\n{{/bool}}\n",
     "* first\n* second\n* third\n"},
    {"Nested (Truthy)", "{\"bool\": true}", "| A {{#bool}}B {{#bool}}C{{/bool}} D{{/bool}} E |",
     "| A B C D E |"},
    {"Nested (Falsey)", "{\"bool\": false}", "| A {{#bool}}B {{#bool}}C{{/bool}} D{{/bool}} E |",
     "| A  E |"},
    {"Context Misses", "{}", "[{{#missing}}Found key 'missing'!{{/missing}}]", "[]"},
    {"Implicit Iterator - String", "{\"list\": [\"a\", \"b\", \"c\", \"d\", \"e\"]}",
     "\"{{#list}}({{.}}){{/list}}\"", "\"(a)(b)(c)(d)(e)\""},
    {"Implicit Iterator - Integer", "{\"list\": [1, 2, 3, 4, 5]}", "\"{{#list}}({{.}}){{/list}}\"",
     "\"(1)(2)(3)(4)(5)\""},
    {"Implicit Iterator - Decimal", "{\"list\": [1.1, 2.2, 3.3, 4.4, 5.5]}",
     "\"{{#list}}({{.}}){{/list}}\"", "\"(1.1)(2.2)(3.3)(4.4)(5.5)\""},
    {"Implicit Iterator - Array", "{\"list\": [[1, 2, 3], [\"a\", \"b\", \"c\"]]}",
     "\"{{#list}}({{#.}}{{.}}{{/.}}){{/list}}\"", "\"(123)(abc)\""},
    {"Dotted Names - Truthy", "{\"a\": {\"b\": {\"c\": true}}}",
     "\"{{#a.b.c}}Here{{/a.b.c}}\" == \"Here\"", "\"Here\" == \"Here\""},
    {"Dotted Names - Falsey", "{\"a\": {\"b\": {\"c\": false}}}",
     "\"{{#a.b.c}}Here{{/a.b.c}}\" == \"\"", "\"\" == \"\""},
    {"Section - Surrounding Whitespace", "{\"boolean\": true}",
     " | {{#boolean}}\t|\t{{/boolean}} | \n", " | \t|\t | \n"},
    {"Section - Internal Whitespace", "{\"boolean\": true}",
     " | {{#boolean}} {{! Important Whitespace }}\n {{/boolean}} | \n", " |  \n  | \n"},
    {"Standalone Lines", "{\"boolean\": true}",
     "| This Is\n{{#boolean}}\n|\n{{/boolean}}\n| A Line\n", "| This Is\n|\n| A Line\n"},
    {"Indented Standalone Lines", "{\"boolean\": true}",
     "| This Is\n  {{#boolean}}\n|\n  {{/boolean}}\n| A Line\n", "| This Is\n|\n| A Line\n"},
    {"Standalone Line Endings", "{\"boolean\": true}", "|\r\n{{#boolean}}\r\n{{/boolean}}\r\n|",
     "|\r\n|"},
    {"Standalone Without Previous Line", "{\"boolean\": true}", "  {{#boolean}}\n#{{/boolean}}\n/",
     "#\n/"},
    {"Standalone Without Newline", "{\"boolean\": true}", "#{{#boolean}}\n/\n  {{/boolean}}",
     "#\n/\n"},
    {"Section Padding", "{\"boolean\": true}", "|{{# boolean }}={{/ boolean }}|", "|=|"},
    /* inverted */
    {"Inverted Falsey", "{\"boolean\": false}", "\"{{^boolean}}Shown.{{/boolean}}\"", "\"Shown.\""},
    {"Inverted Truthy", "{\"boolean\": true}", "\"{{^boolean}}Not shown.{{/boolean}}\"", "\"\""},
    {"Inverted Null is falsey", "{\"null\": null}", "\"{{^null}}Shown.{{/null}}\"", "\"Shown.\""},
    {"Inverted Context", "{\"context\": {\"name\": \"Joe\"}}",
     "\"{{^context}}Hi {{name}}.{{/context}}\"", "\"\""},
    {"Inverted List", "{\"list\": [{\"n\": 1}]}", "\"{{^list}}Yay lists!{{/list}}\"", "\"\""},
    {"Inverted Empty List", "{\"list\": []}", "\"{{^list}}Yay lists!{{/list}}\"", "\"Yay lists!\""},
    {"Inverted Context Misses", "{}", "[{{^missing}}Cannot find key 'missing'!{{/missing}}]",
     "[Cannot find key 'missing'!]"},
    {"Inverted Dotted Names - Broken Chains", "{\"a\": {}}",
     "\"{{^a.b.c}}Not Here{{/a.b.c}}\" == \"Not Here\"", "\"Not Here\" == \"Not Here\""},
    /* comments */
    {"Inline", "{}", "12345{{! Comment Block! }}67890", "1234567890"},
    {"Multiline", "{}", "12345{{!\n  This is a\n  multi-line comment...\n}}67890\n",
     "1234567890\n"},
    {"Standalone", "{}", "Begin.\n{{! Comment Block! }}\nEnd.\n", "Begin.\nEnd.\n"},
    {"Indented Standalone", "{}", "Begin.\n  {{! Indented Comment Block! }}\nEnd.\n",
     "Begin.\nEnd.\n"},
    {"Multiline Standalone", "{}", "Begin.\n{{!\nSomething's going on here...\n}}\nEnd.\n",
     "Begin.\nEnd.\n"},
    {"Indented Inline", "{}", "  12 {{! 34 }}\n", "  12 \n"},
    {"Surrounding Whitespace", "{}", "12345 {{! Comment Block! }} 67890", "12345  67890"},
};

/* Ours: what Mustache leaves open. */
static const example OURS[] = {
    {"zero is a value", "{\"n\": 0}", "{{#n}}({{.}}){{/n}}{{^n}}none{{/n}}", "(0)"},
    {"an empty text is a value", "{\"s\": \"\"}", "{{#s}}there{{/s}}", "there"},
    {"reals have 6 digits", "{\"a\": 0.00034567891, \"b\": 123456.789, \"c\": 2.0}",
     "{{a}} {{b}} {{c}}", "0.000345679 123457 2"},
    {"bytes of UTF-8 stay", "{\"s\": \"\xC3\xA9\"}", "{{s}}\xC3\xA9", "\xC3\xA9\xC3\xA9"},
    {"an object has no text", "{\"o\": {\"a\": 1}}", "[{{o}}]", "[]"},
    {"text without tags", "{}", "a } }} b", "a } }} b"},
    {"nothing", "{}", "", ""},
    {"bodies that are not shown may hold anything", "{}",
     "{{#none}}{{#list}}{{a.b}}{{/list}}{{^x}}y{{/x}}{{/none}}", ""},
};

static void check(const example *one)
{
    bp_buffer out = {0};
    json_t *data = json_loads(one->data, JSON_DECODE_ANY, NULL);
    char *text;

    assert_non_null(data);
    bp_test_expect(bp_template_render(&out, one->text, one->name, data), BP_OK);
    text = bp_buffer_take(&out);
    if (strcmp(text, one->expected) != 0)
        print_error("%s:\n", one->name);
    assert_string_equal(text, one->expected);
    bp_free(text);
    json_decref(data);
}

/* U+0000 does not end a text, and nothing that is shown does something to a terminal. */
static void control_characters_are_spelled(void **state)
{
    bp_buffer out = {0};
    json_t *data = json_pack("{s:s#, s:s}", "a", "x\0\x1b<\t\n", 6, "b", "\x7f\\x41\xC3\x84");

    (void)state;
    bp_test_expect(bp_template_render(&out, "{{a}}|{{b}}", "control", data), BP_OK);
    assert_string_equal(out.data, "x\\x00\\x1B&lt;\t\n|\\x7F\\x41\xC3\x84");
    bp_buffer_clear(&out);
    json_decref(data);
}

static void cases_of_the_specification_hold(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof SPEC / sizeof SPEC[0]; k++)
        check(&SPEC[k]);
}

static void what_it_leaves_open_is_chosen(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof OURS / sizeof OURS[0]; k++)
        check(&OURS[k]);
}

static void broken_templates_are_named_with_their_line(void **state)
{
    static const struct {
        const char *text, *says;
    } BROKEN[] = {
        {"a\nb {{name", "broken:2 ... [report.bad_template]"},
        {"{{{name}}", "broken:1 ... [report.bad_template]"},
        {"\n\n{{#a}}x", "broken:3 ... [report.bad_template]"},
        {"{{#a}}\n{{/b}}", "broken:2 ... [report.bad_template]"},
        {"x{{/a}}", "broken:1 ... [report.bad_template]"},
        {"{{#none}}{{#a}}{{/none}}",
         "broken:1 ... [report.bad_template]"}, /* where nothing is shown */
        {"{{}}", "broken:1 ... [report.bad_template]"},
        {"{{# }}", "broken:1 ... [report.bad_template]"},
    };
    json_t *data = json_pack("{s:i}", "a", 1);

    (void)state;
    for (size_t k = 0; k < sizeof BROKEN / sizeof BROKEN[0]; k++) {
        bp_buffer out = {0};

        bp_test_expect(bp_template_render(&out, BROKEN[k].text, "broken", data), BP_ERR_FORMAT);
        bp_test_message_has(BROKEN[k].says);
        bp_buffer_clear(&out);
    }
    json_decref(data);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_are_spelled),
        cmocka_unit_test(cases_of_the_specification_hold),
        cmocka_unit_test(what_it_leaves_open_is_chosen),
        cmocka_unit_test(broken_templates_are_named_with_their_line),
    };
    return BP_TEST_RUN(tests);
}
