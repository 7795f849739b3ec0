// The filters, tests, functions and methods that templates can use.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/chat/jinja/meter.h"
#include "runtime/data/chat/jinja/value.h"

namespace dstrain::jinja {

struct CallArguments {
  std::vector<Value> given;
  std::vector<std::pair<std::string, Value>> named;
};

bool has_filter(std::string_view name);
bool has_test(std::string_view name);
bool has_function(std::string_view name);
bool has_method(const Value& self, std::string_view name);

// Each throws UserError for arguments that it does not take, and for values of a type that it is not for.
Value apply_filter(Meter& meter, std::string_view name, const Value& subject,
                   const CallArguments& arguments);
bool apply_test(Meter& meter, std::string_view name, const Value& subject,
                const CallArguments& arguments);
Value call_function(Meter& meter, std::string_view name, const CallArguments& arguments);
Value call_method(Meter& meter, const Value& self, std::string_view name,
                  const CallArguments& arguments);

// The operators. Each counts what it takes.
bool compare(Meter& meter, std::string_view sign, const Value& a, const Value& b);
Value calculate(Meter& meter, std::string_view sign, const Value& a, const Value& b);
// Returns a[key], or the undefined value.
Value item_of(Meter& meter, const Value& value, const Value& key);
// Returns value.name; the undefined value if there is none. Throws UserError if `value` is undefined itself.
Value attribute_of(Meter& meter, const Value& value, const std::string& name);
// Returns value[begin:end:step]; none and undefined values are left out.
Value slice_of(Meter& meter, const Value& value, const Value& begin, const Value& end,
               const Value& step);

// Returns what a loop over `value` meets: the items of a list, the names of a dict, the characters of a text; nothing of
// what is undefined. Throws UserError for other values.
std::shared_ptr<const List> items_of(Meter& meter, const Value& value);
// Returns whether the value is true. Throws UserError where a filter such as select has made it: in Jinja that is always
// true, and has no length and no text, before the filter list or a loop reads it.
bool holds(Meter& meter, const Value& value);
// Throws UserError for such a value; `what` is what it has not.
void refuse_generator(Meter& meter, const Value& value, std::string_view what);
// Returns str(value), counted.
std::string printed(Meter& meter, const Value& value);
// Counts what a dict takes for a member of this name, without its value.
void count_member(Meter& meter, std::string_view name);
// Returns the text of a value that must be one; `what` names it in the message.
const std::string& text_in(Meter& meter, const Value& value, std::string_view what);

}  // namespace dstrain::jinja
