// Texts that grow while a template is rendered.
#pragma once

#include <string>
#include <string_view>

#include "runtime/data/chat/jinja/meter.h"

namespace dstrain::jinja {

// Counts bytes and appends them to a text. Throws UserError where the text would be larger than a rendered text may be,
// because a text that grows takes as much again while it is moved.
inline void append(Meter& meter, std::string& out, std::string_view text) {
  meter.bytes(text.size());
  meter.check_output(out.size() + text.size());
  out += text;
}

}  // namespace dstrain::jinja
