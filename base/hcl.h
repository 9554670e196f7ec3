/* HCL in: HashiCorp's configuration language, version 1 (github.com/hashicorp/hcl, v1.0.0), as ACL rules and agents'
 * configuration files are written in it. The result is a tree of json-c, in the shape that the original decodes into:
 *
 *   name = VALUE                 {"name": VALUE}          text, number, true, false, [list]
 *   name { a = 1 }               {"name": [{"a": 1}]}     a block is an item of an array, also when it is the only one;
 *   name { a = 1 } name { b = 2} {"name": [{"a": 1}, {"b": 2}]}
 *   name = { a = 1 }             {"name": [{"a": 1}]}     "=" may stand before an object
 *   name "x" y { a = 1 }         {"name": [{"x": [{"y": [{"a": 1}]}]}]}     labels, with and without quotes
 *   name = [{ a = 1 }, [2]]      {"name": [{"a": 1}, [2]]}    in a list objects stand by themselves
 *
 * Comments begin with # or // or stand between slash-asterisk and asterisk-slash. Text is "quoted", with Go's escapes, or a
 * heredoc: <<END, lines, END; <<-END takes the indentation of the last line from all lines. In quoted text "${...}" stays
 * as it is written, with what is inside. Numbers are decimal, 0x..., 0... (octal), or have a dot or an exponent. The end
 * of a line may be CR LF, and is LF in texts.
 *
 * Differences to the original, which takes these in silence: refused are a name that stands in its object a second time,
 * unless both are blocks; empty places in lists and lists without a comma between; numbers that run into letters (1kb);
 * escapes that make bytes that are not UTF-8, or a NUL in a name. Taken is a heredoc that ends with the text, or whose end
 * has another indentation. Letters of names are those of ASCII and all that is beyond ASCII.
 *
 * Bounds: text of HCL_SIZE_MOST bytes, HCL_VALUES_MOST values, a tree of at most 63 levels of objects and lists, which
 * json_parse takes too, once it is written. All text in the tree is UTF-8; values may hold NUL bytes. */
#ifndef COORD_BASE_HCL_H
#define COORD_BASE_HCL_H

#include <json-c/json_object.h>

#include "base/buffer.h"
#include "base/error.h"

#define HCL_SIZE_MOST   ((size_t)16 << 20)
#define HCL_VALUES_MOST ((size_t)500000)

/* An object; empty when the text has nothing but comments. NULL and a fault in one line when it is no HCL: "HCL: text
 * without a closing quote at line 3, column 17"; CO_INVALID, or CO_TOOLARGE beyond the bounds. Release it with
 * json_object_put(). The tree must not be copied by json_object_deep_copy(), which does not take the places along. */
struct json_object *hcl_parse(struct slice text, struct fault *fault);

/* The byte of the text at which a value of such a tree begins: the name of a member, of a block, or a block's label;
 * else the value. Of an array that has blocks it is the first block's. It stays with the value when that is put elsewhere. */
size_t hcl_place(struct json_object *value);

#endif
