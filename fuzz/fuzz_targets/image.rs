#![no_main]
cuesta_fuzz::target!(Image);
