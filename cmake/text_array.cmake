# cmake -DOUT=FILE.c -DFILE=TEXT -DNAME=NAME -DHEADER=HEADER -P text_array.cmake: a file as a C string.
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made by cmake/text_array.cmake. */\n#include \"${HEADER}\"\n\nconst char ${NAME}[] = {\n${bytes}0\n};\n")
