/* A program of one library, to see that it links: see CMakeLists.txt. */
int main(void)
{
    return 0;
}
