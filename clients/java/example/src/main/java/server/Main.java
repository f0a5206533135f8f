package server; class Main { public static void main(String[] a) { } }
