# The manual page trackway(3), made of the public headers: their comments are the reference, and so
# the page says what they say. Called by `make install`:
#
#     awk -v version=VERSION -f packaging/man3.awk include/trackway/{trackway,dynamic}.h
#
# With -v list=1: the names that the page is to be found under, one a line, the page's own first.
#
# Of each file it reads comments that begin at the start of a line, and the declaration behind each,
# up to the line that says that the rest is not for use.

function roff(text) {
	gsub(/\\/, "\\e", text)
	gsub(/-/, "\\-", text)
	gsub(/'/, "\\(aq", text)
	gsub(/`/, "\\(ga", text)
	sub(/^\./, "\\\\\\&.", text)
	return text
}

function put(line) {
	body = body line "\n"
}

# What is declared: the macro, function or type of the first line, or nothing.
function name_of(line) {
	if (line ~ /^#define /) {
		sub(/^#define /, "", line)
		sub(/[^A-Za-z0-9_].*/, "", line)
		return line
	}
	if (line ~ /^(struct|enum) [a-z_]+( \{|;)$/) {
		sub(/( \{|;)$/, "", line)
		return line
	}
	if (line ~ /^[a-z]+ trackway_[a-z_]+\(/) {
		sub(/\(.*/, "", line)
		sub(/.* /, "", line)
		return line
	}
	return ""
}

# Writes the comment that was read and the declaration that stood behind it.
function flush_block(   i, name, in_code, code, blank) {
	if (!comments)
		return
	name = name_of(declarations ? declaration[1] : "")
	if (is_first)
		put(".SH <trackway/" file ">")
	else if (name != "") {
		put(".SS " roff(name))
		if (name !~ / /)
			names[++name_count] = name
	} else if (match(comment[1], /TRACKWAY_[A-Z]+/)) {
		names[++name_count] = substr(comment[1], RSTART, RLENGTH)
		put(".SS " names[name_count])
	}
	is_first = 0
	if (declarations && (declaration[1] !~ /^#define/ || declaration[1] ~ /^#define [A-Z_]+ [0-9]/)) {
		put(".EX")
		for (i = 1; i <= declarations; i++)
			put(roff(declaration[i]))
		put(".EE")
		put(".PP")
	}
	# What is indented is shown as it is; blank lines count where something follows.
	in_code = blank = 0
	for (i = 1; i <= comments; i++) {
		if (comment[i] == "") {
			blank = 1
			continue
		}
		code = comment[i] ~ /^    /
		if (in_code && !code)
			put(".EE")
		if (in_code && code && blank)
			put("")
		else if (blank || code != in_code)
			put(".PP")
		if (code && !in_code)
			put(".EX")
		put(roff(comment[i]))
		in_code = code
		blank = 0
	}
	if (in_code)
		put(".EE")
	comments = declarations = 0
}

FNR == 1 {
	flush_block()
	file = FILENAME
	sub(/.*\//, "", file)
	is_first = 1
	is_public = 1
	in_comment = in_declaration = 0
}

/^ \* The rest is not for use/ {
	is_public = 0
	comments = declarations = 0
}

!is_public || /SPDX-License-Identifier/ { next }

/^\/\*/ {
	flush_block()
	in_comment = 1
	sub(/^\/\* ?/, "")
	if ($0 == "")
		next
}

in_comment {
	if (/\*\/$/) {
		in_comment = 0
		in_declaration = 1
		sub(/ *\*\/$/, "")
	}
	sub(/^ \* ?/, "")
	if ($0 != "" || (in_comment && comments))
		comment[++comments] = $0
	next
}

/^$/ { in_declaration = 0 }

# What includes and guards stand between is no declaration.
in_declaration && !/^#(ifndef|ifdef|include|endif)/ { declaration[++declarations] = $0 }

END {
	is_public = 1
	flush_block()
	if (list) {
		for (i = 1; i <= name_count; i++)
			print names[i]
		exit
	}
	printf ".\\\" Made of the headers by packaging/man3.awk.\n"
	printf ".TH TRACKWAY 3 \"\" \"trackway %s\" \"Trackway\"\n.nh\n.SH NAME\ntrackway", version
	for (i = 1; i <= name_count; i++)
		if (names[i] != "trackway")
			printf ", %s", names[i]
	printf " \\- events for programs in C, C++ and other languages\n"
	printf "%s", body
	printf ".SH SEE ALSO\n.BR trackway (1),\n.BR trackway\\-record (1)\n"
}
