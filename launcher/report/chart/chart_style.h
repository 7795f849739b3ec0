// The look of pictures: one style sheet for those in a page and those in files of their own, light and dark.
#pragma once

#include <cstddef>
#include <string>

namespace dstrain::report {

// Colours that people with any colour vision tell apart, after Okabe and Ito (2008), with more contrast on white, and a
// second set for dark pages. Runs beyond them have the same colours with dashes.
inline constexpr size_t kColours = 7;

// Returns the classes of a line or an area of a colour.
std::string colour_class(size_t colour);

// Returns the rules for pictures, which have the class `plot`.
std::string chart_style();

}  // namespace dstrain::report
