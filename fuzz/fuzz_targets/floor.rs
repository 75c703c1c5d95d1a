#![no_main]
cuesta_fuzz::target!(Floor);
