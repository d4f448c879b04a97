# SPDX-License-Identifier: BSD-3-Clause
#
# The public header as it could have been before this version, and as it could be after
# it.  Older: structs with a size end where the smallest one does.  Later: they have one
# field more, at the end or, where the struct never grows, in place of a reserved one.
# cmake -DHEADER=<baton.h> -DAGE=older|later -DTO=<file> -P this
cmake_minimum_required(VERSION 3.25)

file(READ ${HEADER} text)

# Split the text at the struct: before, body (without its last line), after.
macro(split type)
	string(FIND "${text}" "\nstruct ${type} {\n" at)
	if(at EQUAL -1)
		message(FATAL_ERROR "${HEADER} has no struct ${type}")
	endif()
	string(SUBSTRING "${text}" 0 ${at} before)
	string(SUBSTRING "${text}" ${at} -1 after)
	string(FIND "${after}" "\n};\n" end)
	string(SUBSTRING "${after}" 0 ${end} body)
	string(SUBSTRING "${after}" ${end} -1 after)
endmacro()

# The struct ends with this field.
macro(end_with type field)
	split(${type})
	string(FIND "${body}" "${field}" at)
	if(at EQUAL -1)
		message(FATAL_ERROR "struct ${type} has no ${field}")
	endif()
	string(SUBSTRING "${body}" 0 ${at} body)
	set(text "${before}${body}${field}${after}")
endmacro()

# In the struct `from` is `to`.
macro(change type from to)
	split(${type})
	string(FIND "${body}" "${from}" at)
	if(at EQUAL -1)
		message(FATAL_ERROR "struct ${type} has no ${from}")
	endif()
	string(REPLACE "${from}" "${to}" body "${body}")
	set(text "${before}${body}${after}")
endmacro()

macro(grow type)
	split(${type})
	set(text "${before}${body}\n\tuint64_t later;\n\tuint64_t later_too;${after}")
endmacro()

# The initialiser of a struct that has other fields.
macro(initialise name value)
	string(FIND "${text}" "#define ${name} " at)
	if(at EQUAL -1)
		message(FATAL_ERROR "${HEADER} has no ${name}")
	endif()
	string(SUBSTRING "${text}" 0 ${at} before)
	string(SUBSTRING "${text}" ${at} -1 after)
	string(FIND "${after}" "/* clang-format on */" end)
	string(SUBSTRING "${after}" ${end} -1 after)
	set(text "${before}#define ${name} ${value}\n${after}")
endmacro()

set(comm_more)
if(AGE STREQUAL "older")
	end_with(baton_comm_options "int64_t timeout_ns;")
	end_with(baton_op_options "struct baton_queue *queue;")
	# What it lies in has the same place for it in every version.
	change(baton_tensors_options "struct baton_op_options op;"
	       "struct baton_op_options op; uint64_t op_reserved[3];")
	end_with(baton_tensors_options "bool *output_signal;")
	end_with(baton_comm_info "const char *library;")
	end_with(baton_message_info "int tag;")
	end_with(baton_request_info "uint64_t age_ns;")
	end_with(baton_variable_info "const char *name;")
	end_with(baton_library_info "const char *name;")
else()
	set(comm_more ", .cuda_device = -1")
	grow(baton_comm_options)
	grow(baton_tensors_options)
	grow(baton_comm_info)
	grow(baton_message_info)
	grow(baton_request_info)
	grow(baton_variable_info)
	grow(baton_library_info)
	foreach(type baton_op_options baton_completion)
		change(${type} "uint64_t reserved_more[3];"
		       "uint64_t later; uint64_t reserved_more[2];")
	endforeach()
endif()
initialise(BATON_COMM_OPTIONS_INIT
	"{ .size = sizeof(struct baton_comm_options)${comm_more} }")
initialise(BATON_OP_OPTIONS_INIT "{ .size = sizeof(struct baton_op_options) }")
initialise(BATON_TENSORS_OPTIONS_INIT
	"{ .op = { .size = sizeof(struct baton_tensors_options) } }")
file(WRITE ${TO} "${text}")
